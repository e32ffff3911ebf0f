"""Shows runs, errors and figures to people on a terminal, in a file or in a notebook.

``output`` prints, ``progress`` draws a run, ``error_view`` describes an error, ``format`` formats
figures, ``traces`` shortens a connector's tracebacks. The command line and the Python interface
(``api``) use it."""

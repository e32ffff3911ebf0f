"""The pages of ``penstock ui``: a pipeline's whole life in a browser.

A face over what the command line calls (``api``, ``engine.inspect``): it shows what ``--json``
prints, writes the pipeline file that ``penstock run`` runs, and has no model of its own. ``app``
has the addresses, ``security`` who may ask, ``server`` the process, ``workspace`` the folder with
the pipeline files, ``jobs`` what takes longer than a request, ``forms`` a form from a JSON Schema,
``pages`` one module a page; templates, the stylesheet and the scripts are beside them. Not here:
what a run, a plan or a state is."""

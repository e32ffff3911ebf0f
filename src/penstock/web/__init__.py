"""The pages of ``penstock ui``: all work on a pipeline in a browser.

A front end to what the command line calls (``api``, ``engine.inspect``): it shows what ``--json``
prints, writes the pipeline file that ``penstock run`` runs, and has no model of its own. ``app``
has the routes, ``security`` the access control, ``server`` the process, ``workspace`` the folder
with the pipeline files, ``jobs`` what takes longer than a request, ``forms`` a form from a JSON
Schema, ``pages`` one module a page. Templates, stylesheet and scripts are in this folder too. Not
here: what a run, a plan or a state is."""

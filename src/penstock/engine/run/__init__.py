"""Opens and closes runs, and puts the parts of each together.

``start`` starts runs for the command line and Python, ``run`` is one of them, ``run_all`` several
on one session, ``wiring`` the only composition root, ``monitor`` the work between a sync's steps,
``spark`` the run's session. Runs in the driver. Not here: what is counted and sent about a run
(``engine.reporting``), the sync itself (``engine.sync``).
"""

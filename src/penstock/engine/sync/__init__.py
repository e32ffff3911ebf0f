"""Runs one sync, from the lease to the last state: begins epochs, runs lanes, watches the log for
sealed segments and has them delivered.

Not here: how rows are delivered (``engine.deliver``). Runs in the driver. Neighbours:
``engine.run.wiring`` puts it together, ``ports`` has the contracts of its collaborators.
"""

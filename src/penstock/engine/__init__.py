"""Runs a pipeline: plan -> extract -> log -> load -> ledger. The only code that decides progress.

A folder shows where its code runs: ``worker`` next to a connector, in a process that a Spark task
starts; ``specs``, ``log`` and ``channel`` on both sides; all else in the driver. ``run`` opens and
closes a run and puts its parts together, ``sync`` is the state machine, ``plan`` decides what a run
does with each stream, ``deliver`` delivers sealed rows, ``reporting`` counts and shows what became
of them, ``serve`` reads the messages of another program, ``inspect`` has the verbs that move no
rows.

The state machine is written against contracts (``log.log.Log``, ``store.contract.Store``,
``sync.ports.LaneRunner``, ``deliver.delivery.Loader``), so that a simulator can stop it at every
step.
"""

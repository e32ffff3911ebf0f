"""plan -> extract -> log -> load -> ledger: the only code that decides progress.

``plan`` is pure. ``child``, ``sealer`` and ``log`` run beside a connector; ``sync`` is the driver's
state machine, ``pending`` its pure decisions; ``lanes`` runs lanes as Spark jobs; ``load`` commits.
The state machine is written against contracts (``log.Log``, ``state.contract.Store``,
``contract.LaneRunner``, ``delivery.Loader``), so that a simulator can stop it at every step.
"""

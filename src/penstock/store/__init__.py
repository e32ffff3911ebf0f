"""Stores a pipeline's progress: leases, epochs, ledger, states, connector keys, names, runs.
``contract`` is the interface that the engine uses; ``sql`` implements it over SQLite or Postgres,
``memory`` in memory."""

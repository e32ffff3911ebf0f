"""The store: leases, epochs, ledger, states, names, runs. ``contract`` is what the engine knows;
``sql`` keeps it in SQLite or Postgres, ``memory`` is the in-memory twin."""

"""The write-ahead log: parts, manifests and rejects on the storage that driver and workers share,
and the log's in-memory twin. Knows files and their names, no connector, no table and no ledger.
Runs in the driver and beside a connector. Neighbours: ``engine.worker`` writes it,
``engine.deliver`` and ``engine.sync`` read it.
"""

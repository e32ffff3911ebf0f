"""Stores the write-ahead log: parts, manifests and rejects on storage that the driver and the
workers share, and the log's in-memory twin.

Handles files and their names. Not here: connectors, tables, the ledger. Runs in the driver and next
to a connector. Neighbours: ``engine.worker`` writes it, ``engine.deliver`` and ``engine.sync`` read
it.
"""

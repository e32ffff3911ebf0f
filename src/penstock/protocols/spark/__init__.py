"""Queries, tables and files that Spark reads: their names, keys, modes and states. No process is
spoken with, and no row comes through here (``engine.query.query_reader`` reads)."""

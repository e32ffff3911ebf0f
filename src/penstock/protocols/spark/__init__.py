"""Describes queries, tables and files that Spark reads: their names, keys, modes and states. It
runs no process, and no row passes through it (``engine.query.query_reader`` reads)."""

"""Reads what a component and a pipeline declare before anything runs, and computes from both what a
stage may do and what it is sent: manifest, permissions, hosts, catalog, hints, shards, stream
context. Pure functions, in the driver and beside a connector. Not here: running a component within
these bounds (``protocols.rapidbyte.guest``).
"""

"""Reads the declarations of a component and a pipeline before a run, and computes a stage's
permissions and inputs from both: manifest, permissions, hosts, catalog, hints, shards, stream
context. Pure functions, in the driver and in the connector's task. Not here: running a component
within these bounds (``protocols.rapidbyte.guest``).
"""

"""Decides everything that a run needs before a record moves, and again when a source sends a new
stream or schema: endpoints, streams, modes, tables, jobs, and what is not supported.

Moves no record. Runs in the driver. Neighbours: ``engine.run`` and ``engine.inspect`` ask for
plans; the results are the structs of ``engine.specs``.
"""

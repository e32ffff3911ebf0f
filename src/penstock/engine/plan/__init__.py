"""Decides everything that a run needs before the first record, and again when a source sends a new
stream or schema: endpoints, streams, modes, tables, jobs, and unsupported settings.

Moves no record. Runs in the driver. Neighbours: ``engine.run`` and ``engine.inspect`` request
plans; the results are the structs of ``engine.specs``.
"""

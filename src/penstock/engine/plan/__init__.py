"""Everything that is decided before a record moves, and again when a source shows a new stream or
schema: endpoints, streams, modes, tables, jobs, and what is not supported. Moves no record. Runs
in the driver. Neighbours: ``engine.run`` and ``engine.inspect`` ask for plans; what they hand on
are the structs of ``engine.specs``.
"""

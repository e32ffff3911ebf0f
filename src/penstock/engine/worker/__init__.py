"""Runs next to a connector, in a process of its own that a Spark task starts: a lane reads a source
and seals segments, a feeder writes segments to a destination connector.

Not here: durable decisions (the driver keeps ledger and states). Imports no pyspark, SQLAlchemy or
command line. Neighbours: ``engine.channel`` brings the job and takes the result, ``engine.log``
keeps the rows.
"""

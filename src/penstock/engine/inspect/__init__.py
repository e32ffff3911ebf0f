"""Inspects pipelines, states, past runs and the machine; moves no rows.

Starts no lane and no load. Runs in the driver's process, without a JVM. Neighbours: ``cli`` prints
the results, ``engine.plan`` makes the plans that they show.
"""

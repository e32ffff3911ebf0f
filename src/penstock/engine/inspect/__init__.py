"""Verbs that look at pipelines, states, past runs and the machine, and move no rows. Nothing here
starts a lane or a load. Runs in the driver's process, without a JVM. Neighbours: ``cli`` prints
what these give, ``engine.plan`` makes the plans that they show.
"""

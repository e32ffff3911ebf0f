"""Defines the data that driver and workers exchange: a run's plan, a lane's job, a feeder's job,
the observers of progress, and the failpoints at which a test may kill a process.

Structs and protocols only. Not here: files, decisions. Runs in the driver and next to a connector.
Every other folder of ``engine`` imports it; it imports none of them.
"""

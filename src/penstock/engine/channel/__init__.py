"""Connects the driver and the processes beside connectors: the Spark job that starts a process, the
job description that the process reads, the mailbox of files, the driver's heartbeat, the logs.

Not here: what a lane or a feeder does with its job (``engine.worker``). Runs on both sides, so it
imports no pyspark: a Spark session is an argument.
"""

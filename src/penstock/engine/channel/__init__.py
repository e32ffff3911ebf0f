"""Connects the driver and the processes next to connectors: the mailbox of files, the driver's
heartbeat, the logs.

Not here: how a process starts (``tasks``), and what a lane or a feeder does with its job
(``engine.worker``). Runs on both sides, so it imports no pyspark.
"""

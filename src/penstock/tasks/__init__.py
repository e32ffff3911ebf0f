"""Runs a process of ours in a Spark task: the Spark job, the file with the process's job, the start
and the main function of the process.

Not here: what the process does (``engine.worker``). Half of this package runs in the process, which
imports no pyspark: a Spark session is an argument."""

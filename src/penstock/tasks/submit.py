"""Names what runs a process of ours: a Spark task (``tasks.spark_job``), or this machine."""

from collections.abc import Callable

Submit = Callable[[str, bytes], bytes]
"""(module of the process, its job) -> its answer, once it ended. Raises the cause if it was
lost."""

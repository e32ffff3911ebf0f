"""Names the worker that runs a Spark task: its host, and the executor's number if it has one.

The function is shipped whole with a task, since a worker's Python may lack Penstock. Neighbours:
``spark.shared_folders`` and ``tasks.spark_job`` ship it.
"""

from collections.abc import Callable


def worker_namer() -> Callable[[], str]:
    """Returns a function that names the worker that calls it, as ``10.0.0.2 (executor 3)``: by the
    command line of the executor's Java, an ancestor of the task's Python; by its host's name where
    that cannot be read. It uses only the standard library."""

    def name() -> str:
        import os
        import socket

        pid = os.getpid()
        for _ in range(6):
            try:
                with open(f"/proc/{pid}/stat", "rb") as about:
                    pid = int(about.read().rpartition(b")")[2].split()[1])
                with open(f"/proc/{pid}/cmdline", "rb") as command:
                    words = command.read().decode(errors="replace").split("\0")
            except (OSError, ValueError, IndexError):
                break
            if "--executor-id" in words:
                number = words[words.index("--executor-id") + 1]
                at = words.index("--hostname") + 1 if "--hostname" in words else 0
                return f"{words[at] if at else socket.gethostname()} (executor {number})"
        return socket.gethostname()

    return name

"""Compares a file with the size and the CRC-32 under which it was sealed: in the driver, in a
process of ours, or in a Spark task.

The function is shipped whole with a task, since a worker's Python may lack Penstock: it uses the
standard library alone, and returns what it found as values that JSON has. Neighbours:
``engine.log.log`` makes errors of them, ``engine.run.part_tasks`` ships the function.
"""

from collections.abc import Callable

Finding = tuple[str, int]
"""What is wrong with a file: (:data:`MISSING`, 0), (:data:`DIFFERS`, its size in bytes) or
(:data:`UNREADABLE`, the errno)."""

MISSING, DIFFERS, UNREADABLE = "missing", "differs", "unreadable"


def checker() -> Callable[[str, int, int], Finding | None]:
    """Returns a function (path, size in bytes, CRC-32) -> what is wrong with the file; None:
    nothing. It reads the file in blocks, and only where its size is right."""

    def check(path: str, size: int, crc: int) -> tuple[str, int] | None:
        import os
        import zlib

        try:
            with open(path, "rb", buffering=0) as file:
                found = os.fstat(file.fileno()).st_size
                if found != size:
                    return "differs", found
                actual = 0
                while block := file.read(1 << 20):
                    actual = zlib.crc32(block, actual)
        except FileNotFoundError:
            return "missing", 0
        except OSError as failure:
            return "unreadable", failure.errno or 5
        return None if actual == crc else ("differs", size)

    return check


check = checker()

"""Keeps packages that nothing asks for out of a process that is Penstock's own.

PyArrow, DuckDB and PySpark import NumPy and pandas wherever they are installed, for conversions
that a worker process and the command line never make: 0.45 s of processor at a start. A process in
which a user's code runs is left alone. Neighbours: ``cli`` and ``engine.channel.child_start`` leave
out, ``spark.session`` lets in what Spark Connect's client needs.
"""

import sys


def leave_out(*packages: str) -> None:
    """Makes imports of these raise ``ModuleNotFoundError``, which those libraries expect, unless
    they are imported already."""
    for name in packages:
        sys.modules.setdefault(name, None)  # pyright: ignore[reportArgumentType, reportCallIssue]


def let_in(*packages: str) -> None:
    """Undoes :func:`leave_out`."""
    for name in packages:
        if name in sys.modules and sys.modules.get(name) is None:
            del sys.modules[name]

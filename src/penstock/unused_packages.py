"""Keeps unused packages out of a process that runs only Penstock's code.

PyArrow, DuckDB and PySpark import NumPy and pandas wherever they are installed, for conversions
that a worker process and the command line never make: half a second of processor time at a start. A
process in which a user's code runs is not changed. Neighbours: ``cli``, ``tasks.child_start`` and
``tasks.worker_daemon`` leave packages out, ``spark.session`` lets in what Spark Connect's client
needs.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

OF_CONNECT = ("google.rpc", "numpy", "pandas")
"""Packages that PySpark imports if installed, and that only its Connect client uses."""

_left_out: set[str] = set()


class _Others(PathFinder):
    """Finds what Python's own finder does, except these packages: for ``import`` and for
    ``importlib.util.find_spec``, which PySpark calls, they are not installed. A finder before
    Python's own could only raise, and DuckDB would use a ``None`` in ``sys.modules`` as the
    module."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _left_out:
            return None
        return PathFinder.find_spec(fullname, path, target)


def leave_out(*packages: str) -> None:
    """Makes these appear as not installed, unless they are imported already."""
    _left_out.update(packages)
    sys.meta_path[:] = [_Others if finder is PathFinder else finder for finder in sys.meta_path]


def let_in(*packages: str) -> None:
    """Undoes :func:`leave_out`."""
    _left_out.difference_update(packages)

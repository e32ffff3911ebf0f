"""Keeps packages that nothing asks for out of a process that is Penstock's own.

PyArrow, DuckDB and PySpark import NumPy and pandas wherever they are installed, for conversions
that a worker process and the command line never make: half a second of processor at a start. A
process in which a user's code runs is left alone. Neighbours: ``cli`` and
``engine.channel.child_start`` leave out, ``spark.session`` lets in what Spark Connect's client
needs.
"""

import sys
from importlib.machinery import ModuleSpec

_left_out: set[str] = set()


class _NotInstalled:
    """A finder that finds none of these. A ``None`` in ``sys.modules`` would not do: DuckDB takes
    it for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in _left_out:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def leave_out(*packages: str) -> None:
    """Makes imports of these raise ``ModuleNotFoundError``, which those libraries expect, unless
    they are imported already."""
    _left_out.update(packages)
    if _NotInstalled not in sys.meta_path:
        sys.meta_path.insert(0, _NotInstalled)


def let_in(*packages: str) -> None:
    """Undoes :func:`leave_out`."""
    _left_out.difference_update(packages)

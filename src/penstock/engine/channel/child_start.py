"""Runs the module of a worker process as ``python -m`` does, without NumPy and pandas.

PyArrow and DuckDB import both wherever they are installed, for conversions that no worker process
asks for: 0.45 s of processor at the start of each. Not here: the module's work
(``engine.channel.child_main``). Neighbour: ``engine.channel.child_process`` starts it.
"""

import runpy
import sys
from importlib.machinery import ModuleSpec

_LEFT_OUT = ("numpy", "pandas")


class _NotInstalled:
    """Finds none of these, as if they were not installed. A ``None`` in ``sys.modules`` would not
    do: DuckDB takes it for the module."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in _LEFT_OUT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, _NotInstalled)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

"""Runs the module of a worker process as ``python -m`` does, without NumPy and pandas.

PyArrow and DuckDB import both wherever they are installed, for conversions that no worker process
asks for: 0.45 s of processor at the start of each. Not here: the module's work
(``engine.channel.child_main``). Neighbour: ``engine.channel.child_process`` starts it.
"""

import runpy
import sys

_LEFT_OUT = ("numpy", "pandas")

if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(_LEFT_OUT))  # pyright: ignore[reportArgumentType, reportCallIssue]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

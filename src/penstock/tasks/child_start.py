"""Runs the module of a worker process as ``python -m`` does, without NumPy, pandas
and cloudpickle.

Not here: the module's work (``tasks.child_main``). Neighbour:
``tasks.child_process`` starts it.
"""

import gc
import runpy
import sys

from penstock import bytecode
from penstock.runtimes.stopped import wake_with_parent
from penstock.unused_packages import leave_out

if __name__ == "__main__":
    wake_with_parent()  # a stopped lane goes on, and ends, when the task that started it is gone
    bytecode.keep()
    leave_out("cloudpickle", "numpy", "pandas")  # PyArrow has pickle without it
    gc.disable()  # until ``child_main.tune``: imports leave next to no garbage
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

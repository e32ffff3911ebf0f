"""Starts the module of a worker process in a fresh interpreter: without NumPy, pandas and
cloudpickle, and with garbage collection off until the job is read.

Not here: the module's work (``tasks.child_main``). Neighbours: ``tasks.child_process`` spawns it,
``tasks.fork_server`` prepares its own interpreter the same way.
"""

import gc
import sys
from importlib import import_module

from penstock import bytecode
from penstock.runtimes.stopped import wake_with_parent
from penstock.unused_packages import leave_out


def prepare() -> None:
    """Prepares the interpreter, before it imports anything large."""
    wake_with_parent()  # a stopped lane goes on, and ends, when the task that started it is gone
    bytecode.keep()
    leave_out("cloudpickle", "numpy", "pandas")  # PyArrow has pickle without it
    gc.disable()  # until ``child_main.tune``: imports leave next to no garbage


def run(module: str) -> None:
    """Calls the ``main`` function of a module."""
    import_module(module).main()


if __name__ == "__main__":
    prepare()
    run(sys.argv[1])

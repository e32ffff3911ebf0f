"""Sets the Python of the workers of a Spark that the user's program opened on this machine.

PySpark takes ``PYSPARK_PYTHON``, else the ``python3`` of the PATH, which has no Penstock where the
program's environment was not activated. Not here: Sparks of our own (``session``), which set the
variable before Java starts; clusters, whose workers have a Python of their own.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_this_python(users: "SparkSession") -> None:
    """Makes this program's Python that of the session's workers. Does nothing if ``PYSPARK_PYTHON``
    is set, on a cluster, and through Spark Connect."""
    context: Any = getattr(users, "sparkContext", None)
    if context is None or not str(context.master).startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ and sys.executable:
        context.pythonExec = sys.executable

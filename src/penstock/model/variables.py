"""Lists the environment variables that no connector ever gets, even if a file or manifest lists
them.

The environments of Spark's and Penstock's workers hold secrets (``PYTHON_WORKER_FACTORY_SECRET``,
``PYSPARK_GATEWAY_SECRET``, ``SPARK_AUTH_SECRET``). Neighbours: ``config.converters`` refuses them
in a file, ``protocols`` in a manifest, ``runtimes.env`` keeps them from a process,
``tasks.child_process`` keeps Spark's from a lane."""

OF_SPARK = ("PYTHON_", "PYSPARK_", "_PYSPARK", "SPARK_", "_SPARK")
_OURS = ("PENSTOCK_", "_PENSTOCK")


def withheld(name: str) -> bool:
    """Returns whether the variable ``name`` must not reach a connector (L10)."""
    return name.startswith((*OF_SPARK, *_OURS))

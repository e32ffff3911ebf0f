"""Which environment variables no connector is ever given, whoever names them.

Spark's workers and ours have secrets in theirs (``PYTHON_WORKER_FACTORY_SECRET``,
``PYSPARK_GATEWAY_SECRET``, ``SPARK_AUTH_SECRET``). Neighbours: ``config.converters`` refuses them
in a file, ``protocols`` in a manifest, ``runtimes.env`` keeps them from a process,
``engine.channel.child_process`` keeps Spark's from a lane.
"""

OF_SPARK = ("PYTHON_", "PYSPARK_", "_PYSPARK", "SPARK_", "_SPARK")
_OURS = ("PENSTOCK_", "_PENSTOCK")


def withheld(name: str) -> bool:
    return name.startswith((*OF_SPARK, *_OURS))

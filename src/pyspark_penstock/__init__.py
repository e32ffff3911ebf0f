"""The package in which Spark 4 finds ``spark.read.format("penstock")`` without registration: it
imports every top-level package named ``pyspark_*`` that has a ``DefaultSource``. Neighbour:
``penstock.api.spark_source``."""

from penstock.api.spark_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]

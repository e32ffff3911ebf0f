"""The package in which Spark 4 finds ``spark.read.format("penstock")`` by itself: it imports every
top-level package named ``pyspark_*`` that has a ``DefaultSource``. Nothing else is here.
Neighbour: ``penstock.api.spark_source``."""

from penstock.api.spark_source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]

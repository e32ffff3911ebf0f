"""Reads the columns of a model out of its catalog (``SchemaRole`` of ``protocols.contract``)."""

from penstock.protocols.json_schema.exact_types import ExactDialect


class SparkSchema(ExactDialect):
    """The types are those that Spark gave the query's columns, exactly."""

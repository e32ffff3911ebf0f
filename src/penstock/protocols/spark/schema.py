"""Reads the columns of a model out of its catalog (``SchemaRole`` of ``protocols.contract``)."""

from typing import Any

from penstock.model.types import DataType
from penstock.protocols.json_schema.exact_types import read_type


class SparkSchema:
    """The types are those that Spark gave the query's columns, exactly."""

    def data_type(self, schema: Any) -> DataType:
        return read_type(schema)

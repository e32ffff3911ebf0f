"""Reads column types from plain JSON Schema: the protocol has no dialect of its own."""

from typing import Any

from penstock.codec import json_schema
from penstock.model.types import DataType


class SyncmavenSchema:
    """``SchemaRole`` of ``protocols.contract``."""

    def data_type(self, schema: Any) -> DataType:
        return json_schema.data_type(schema)

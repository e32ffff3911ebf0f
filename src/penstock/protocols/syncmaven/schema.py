"""Reads column types from plain JSON Schema: the protocol has no dialect of its own."""

from penstock.codec.json_schema import SchemaDialect


class SyncmavenSchema(SchemaDialect):
    """``SchemaRole`` of ``protocols.contract``."""

"""Declares the table format ``parquet`` (``config.table_formats``)."""

from penstock.config.table_formats import TableFormatSpec

SPEC = TableFormatSpec(name="parquet", label="Parquet", mark="_penstock.json", merges_at_end=True)

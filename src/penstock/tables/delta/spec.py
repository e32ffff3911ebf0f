"""Declares the table format ``delta`` (``config.table_formats``)."""

from penstock.config.table_formats import TableFormatSpec

LOG = "_delta_log"  # the folder of a table's transaction log

SPEC = TableFormatSpec(name="delta", label="Delta", mark=LOG, query="delta", package="deltalake")

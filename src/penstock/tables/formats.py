"""Opens a table format by its name (``parquet``, ``delta``). Each format is imported on first
use."""

from collections.abc import Mapping

from penstock.config.removable_packages import need
from penstock.errors import ConfigError
from penstock.tables.contract import TableFormat

KINDS = ("parquet", "delta")


def open_table(kind: str, path: str, options: Mapping[str, str] | None = None) -> TableFormat:
    """Returns the destination of format ``kind`` at ``path``. ``options``: the format's own, as
    text.

    Imports no Spark and reads no file. Raises ``ConfigError``: ``config.unknown_table``,
    ``config.unknown_option``, ``config.package``, ``destination.not_local``."""
    if kind == "parquet":
        from penstock.tables.parquet.tables import ParquetTables

        return ParquetTables(path, options)
    if kind == "delta":
        from penstock.tables.delta.tables import DeltaTables

        need("deltalake")
        return DeltaTables(path, options)
    raise ConfigError(
        f"there is no table format {kind!r}",
        code="config.unknown_table",
        hint=f"the formats are {', '.join(KINDS)}",
    )

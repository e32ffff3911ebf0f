"""From a name to a table format: ``parquet``, ``delta``; each imported when it is asked for."""

from collections.abc import Mapping

from penstock.errors import ConfigError
from penstock.tables.contract import TableFormat

KINDS = ("parquet", "delta")


def open_table(kind: str, path: str, options: Mapping[str, str] | None = None) -> TableFormat:
    """The destination ``kind`` at ``path``. ``options`` are the format's own, as text.

    Imports no Spark and touches no file. Raises ``ConfigError``: ``config.unknown_table``,
    ``config.unknown_option``, ``destination.not_local``."""
    if kind == "parquet":
        from penstock.tables.parquet import ParquetTables

        return ParquetTables(path, options)
    if kind == "delta":
        from penstock.tables.delta import DeltaTables

        return DeltaTables(path, options)
    raise ConfigError(
        f"there is no table format {kind!r}",
        code="config.unknown_table",
        hint=f"the formats are {', '.join(KINDS)}",
    )

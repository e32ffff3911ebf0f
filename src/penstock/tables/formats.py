"""Opens a table format by its name. A format is one folder here with a ``spec``
(``config.table_formats``) and a ``tables`` module, whose ``TABLES`` makes its destination; the
module is imported on first use."""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module

import platformdirs

from penstock.config.removable_packages import need
from penstock.config.table_formats import ROOT, table_formats
from penstock.errors import ConfigError
from penstock.spark.jars import find_jars
from penstock.tables.contract import SessionNeeds, TableFormat


def open_table(name: str, path: str, options: Mapping[str, str] | None = None) -> TableFormat:
    """Returns the destination of format ``name`` at ``path``. ``options``: the format's own, as
    text.

    Imports no Spark and reads no file. Raises ``ConfigError``: ``config.unknown_table``,
    ``config.unknown_option``, ``config.package``, ``destination.not_local``."""
    spec = table_formats().get(name)
    if spec is None:
        raise ConfigError(
            f"there is no table format {name!r}",
            code="config.unknown_table",
            hint=f"the formats are {', '.join(table_formats())}",
        )
    if spec.package is not None:
        need(spec.package)
    return _tables(name, path, options)


def session_needs(name: str) -> SessionNeeds:
    """Returns what the Spark session needs for tables of format ``name``, wherever they are. Raises
    ``ConfigError`` if no such jars exist for this Spark."""
    return _tables(name, "/", None).needs()


def ready_needs() -> SessionNeeds:
    """Returns the needs of a Spark session that serves every format whose jars are on this
    machine."""
    cache = platformdirs.user_cache_path("penstock")
    needs = SessionNeeds()
    for name in table_formats():
        with suppress(ConfigError):  # this Spark has no such jars, or the user's folder lacks them
            found = session_needs(name)
            if not find_jars(found.packages, cache).missing:
                needs = needs.also(found)
    return needs


def _tables(name: str, path: str, options: Mapping[str, str] | None) -> TableFormat:
    return import_module(f"{ROOT}.{name}.tables").TABLES(path, options)

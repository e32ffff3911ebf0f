"""Defines the spec that each table format's folder declares, finds the specs, and splits a ``use``
that names a table and its place (``parquet:./lake``).

``penstock/tables/NAME/spec.py`` holds ``SPEC``, a :class:`TableFormatSpec`; a folder there without
such a module is no format. The type is defined in this layer, below the tables, since references
and the pipeline file know formats by their names; the folders are found by their location in the
installed package. A spec must be quick to import. Not here: what a format does
(``tables.contract``, opened by ``tables.formats``); the names of connectors
(``connectors.reference``).
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from penstock.config.folder_specs import specs_in

ROOT = "penstock.tables"


class TableFormatSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A table format as config, help and other layers know it.

    ``name``: before the colon of a ``use``; ``label``: in text. ``place``: the config key of its
    place. ``mark``: the file or folder that lies in each of its tables' folders; None: its tables
    are no folders. ``query``: Spark's name of the format where a query may read its tables, with
    the jars that the format needs. ``package``: a removable package (``config.removable_packages``)
    that it needs. ``merges_at_end``: a load that keeps one row per key is committed once, at the
    end of the sync."""

    name: str
    label: str
    place: str = "path"
    mark: str | None = None
    query: str | None = None
    package: str | None = None
    merges_at_end: bool = False

    def is_table(self, folder: Path | str) -> bool:
        """Returns whether ``folder`` holds a table of the format, written by any tool."""
        return self.mark is not None and os.path.exists(f"{folder}/{self.mark}")


@cache
def table_formats() -> Mapping[str, TableFormatSpec]:
    """Returns all table formats by name; those that need no package of their own first."""
    found: list[TableFormatSpec] = specs_in(ROOT)
    return {s.name: s for s in sorted(found, key=lambda s: (s.package is not None, s.name))}


def format_of(folder: Path | str) -> TableFormatSpec | None:
    """Returns the format of the table in ``folder``; None: it holds none."""
    return next((s for s in table_formats().values() if s.is_table(folder)), None)


def queried_format(name: str) -> TableFormatSpec | None:
    """Returns the format that a query reads under Spark's name ``name``, in any case; None: Spark
    reads it without Penstock."""
    return next((s for s in table_formats().values() if s.query == name.lower()), None)


def split_table(use: str) -> tuple[str, str, str] | None:
    """Returns (format, config key, place) of ``parquet:./lake``; None where ``use`` is not a table
    format with a place."""
    table, colon, place = use.partition(":")
    if not colon or table not in table_formats():
        return None
    return table, table_formats()[table].place, place


def without_password(url: str) -> str:
    """Returns ``url`` without password and query, safe to show and to hash (L10)."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    login, at, host = authority.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}{slash}{path}"

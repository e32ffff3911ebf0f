"""Finds tables whose folders are nested, on a local file system.

A VACUUM of a Delta table deletes every file below its folder that its log does not name, including
the files of a table inside it. A rewrite of a Parquet table replaces its whole folder. So a new
table never gets a folder above or below another table's (:meth:`NestedFolders.refuse`). A folder is
a table if it has the mark of a table format (``config.table_formats``). VACUUM skips folders whose
names begin with ``_`` or ``.``, and so does the search below a folder. Not here: tables on object
stores (``delta.locations``), the text for ``plan`` (``engine.plan.nested_tables``)."""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from penstock.config.table_formats import TableFormatSpec, format_of
from penstock.errors import DestinationError
from penstock.tables.contract import NestedTable

MOST_ENTRIES = 100_000  # looked at below an existing table, which may have many files


class NestedFolders:
    """Looks once at the folders of many tables; what is above them is looked at once. ``format``:
    their table format."""

    def __init__(self, format: TableFormatSpec) -> None:
        self._format = format
        self._above: dict[str, str | None] = {}  # folder -> the table that it is, or is in
        self._real: dict[Path, str] = {}

    def nested(self, folder: Path) -> NestedTable | None:
        """Returns the table above or below ``folder`` (the nearest one above comes first), or one
        of another format in the same folder; None: there is none. Looks at no more than
        :data:`MOST_ENTRIES` entries below an existing table."""
        new = not self._format.is_table(folder)
        if new and format_of(folder) is not None:
            return NestedTable(str(folder), outer=True, new=True, shared=True)
        real = self._real_path(folder)
        above = self._table_above(os.path.dirname(real))
        if above is not None:
            return NestedTable(above, outer=True, new=new)
        below = _table_below(real, None if new else MOST_ENTRIES)
        return None if below is None else NestedTable(below, outer=False, new=new)

    def refuse(self, folder: Path) -> None:
        """Proves that a table may be made in ``folder``, which has none of the format yet. Raises
        ``DestinationError`` (``destination.nested``)."""
        if not self._format.is_table(folder) and (nested := self.nested(folder)) is not None:
            raise nested_failure(str(folder), nested)

    def _real_path(self, folder: Path) -> str:
        if os.path.islink(folder):
            return os.path.realpath(folder)
        if folder.parent not in self._real:
            self._real[folder.parent] = os.path.realpath(folder.parent)
        return os.path.join(self._real[folder.parent], folder.name)

    def _table_above(self, folder: str) -> str | None:
        if folder not in self._above:
            above = os.path.dirname(folder)
            further = None if above == folder else self._table_above(above)
            self._above[folder] = folder if format_of(folder) else further
        return self._above[folder]


def _table_below(folder: str, most: int | None) -> str | None:
    """Searches level by level, so that the nearest table is found first. Follows links to folders,
    as VACUUM does."""
    waiting, seen, entries = deque([folder]), set[tuple[int, int]](), 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.popleft()) as found:
            for entry in found:
                entries += 1
                if most is not None and entries > most:
                    return None
                if entry.name[0] in "._" or not entry.is_dir():
                    continue
                status = os.stat(entry.path)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                if format_of(entry.path) is not None:
                    return entry.path
                waiting.append(entry.path)
    return None


def nested_failure(place: str, nested: NestedTable) -> DestinationError:
    """Makes the error for a new table at ``place`` that would be above or below another one."""
    return DestinationError(
        f"the new table {place} would {nested.relation('lie', 'have')}: {nested.danger}",
        code="destination.nested",
        where=place,
        hint="nothing was written: give the destination another path, or (to a pipeline that has"
        " not run yet) a destination.namespace or destination.prefix, and run again",
    )

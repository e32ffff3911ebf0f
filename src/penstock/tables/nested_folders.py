"""Finds tables whose folders lie inside one another, on a local file system.

A VACUUM of a Delta table deletes every file below its folder that its log does not name, so also
the files of a table inside it; what rewrites a Parquet table replaces its whole folder. So a new
table never gets a folder above or below another table's (:func:`refuse_nested`). A folder is a
table where it has Delta's log or the marker of a Parquet table of ours. VACUUM skips folders whose
names begin with ``_`` or ``.``, and so does the search below a folder. Not here: tables on object
stores (``delta_locations``), what ``plan`` says (``engine.plan.nested_tables``).
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from penstock.errors import DestinationError
from penstock.tables.contract import NestedTable
from penstock.tables.parquet_folders import MARKER

DELTA_LOG = "_delta_log"
MOST_ENTRIES = 100_000  # looked at below a table that is there: its files may be many


def is_table(folder: Path) -> bool:
    """Whether ``folder`` is a table's, of whatever writer."""
    return (folder / DELTA_LOG).is_dir() or (folder / MARKER).is_file()


def nested_table(folder: Path, mark: str) -> NestedTable | None:
    """Returns the table above or below ``folder``, where the nearest one above comes first, or one
    of another format in it; None: there is none. ``mark``: the name in a folder that makes it a
    table of the format (:data:`DELTA_LOG`, ``MARKER``). Below a table that is there, at most
    :data:`MOST_ENTRIES` entries are looked at."""
    new = not (folder / mark).exists()
    if new and is_table(folder):
        return NestedTable(str(folder), outer=True, new=True)
    real = Path(os.path.realpath(folder))
    above = next((parent for parent in real.parents if is_table(parent)), None)
    if above is not None:
        return NestedTable(str(above), outer=True, new=new)
    below = _table_below(real, None if new else MOST_ENTRIES)
    return None if below is None else NestedTable(str(below), outer=False, new=new)


def _table_below(folder: Path, most: int | None) -> Path | None:
    """Searches level by level, so that the nearest table is found first; folders behind links
    too, since VACUUM follows them."""
    waiting, seen, entries = deque([folder]), set[tuple[int, int]](), 0
    while waiting:
        with suppress(OSError), os.scandir(waiting.popleft()) as found:
            for entry in found:
                entries += 1
                if most is not None and entries > most:
                    return None
                if entry.name[0] in "._" or not entry.is_dir():
                    continue
                place, status = Path(entry.path), os.stat(entry.path)
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
                if is_table(place):
                    return place
                waiting.append(place)
    return None


def refuse_nested(folder: Path, mark: str) -> None:
    """Proves that a table may be made in ``folder``, where there is none of the format yet. Raises
    ``DestinationError`` (``destination.nested``)."""
    if not (folder / mark).exists() and (nested := nested_table(folder, mark)) is not None:
        raise nested_failure(str(folder), nested)


def nested_failure(place: str, nested: NestedTable) -> DestinationError:
    """The error for a new table at ``place`` that would lie above or below another one."""
    return DestinationError(
        f"the new table {place} would {nested.relation('lie', 'have')}: {nested.danger}",
        code="destination.nested",
        where=place,
        hint="nothing was written: give the destination another path, or (to a pipeline that has"
        " not run yet) a destination.namespace or destination.prefix, and run again",
    )

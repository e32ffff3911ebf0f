"""Records which rows of a compared model a lane's transforms left out, so that they do not count as
sent.

Next to the set of changes that an epoch staged (``engine.query.model_diff``)::

    snapshots/STREAM/00000007/left_out/000001.parquet    c0, ...: the key; penstock_removed

A file is whole and durable before the state that covers its rows passes, so that no crash forgets a
row. Neighbours: ``builtin`` finds the rows, ``spark.snapshot`` reads the files.
"""

from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.codec.system_columns import ascending
from penstock.codec.untyped import Array, Table
from penstock.codec.untyped import compute as pc
from penstock.files import make_folder, replace
from penstock.model.events import ComparedRows
from penstock.model.staged_rows import LEFT_OUT, REMOVED
from penstock.tasks.storage import storage
from penstock.transforms.chain import ChainResult, SentRows


class KeysLeftOut:
    """Records the keys of the rows that one stage left out."""

    def __init__(self) -> None:
        self._found: dict[str, list[Table]] = {}
        self._written: dict[str, int] = {}

    def add(self, rows: ComparedRows, made: ChainResult) -> None:
        """Adds the rows that the transforms left out, rejected or turned into deletes. ``rows``:
        those of the batch."""
        if made.origin is None:
            return
        none: Any = pa.array([], pa.int64())
        removed = none if made.removed is None else made.removed
        places = ascending(0, len(rows.held))
        out = pc.and_not(pc.is_in(places, made.origin), pc.is_in(places, removed))
        lost = places.filter(pc.invert(out))
        if len(lost):
            keys = rows.keys.take(lost)
            keys = keys.append_column(REMOVED, pc.is_in(lost, removed))
            self._found.setdefault(rows.folder, []).append(keys)

    def write(self) -> None:
        """Writes what was added. Raises ``LogError``."""
        for folder, tables in self._found.items():
            number = self._written[folder] = self._written.get(folder, 0) + 1
            place = Path(folder) / LEFT_OUT
            body: Any = pa.BufferOutputStream()
            pq.write_table(pa.concat_tables(tables), body)
            with storage(place, "write to"):
                make_folder(place, 0o700)
                replace(place / f"{number:06d}.parquet", body.getvalue().to_pybytes(), durable=True)
        self._found.clear()


def sent_rows(rows: ComparedRows) -> SentRows:
    """Returns what a chain needs of the rows."""
    at: Any = pa.scalar(rows.at, pa.timestamp("ms", tz="UTC"))
    return SentRows(rows.held, at.cast(pa.timestamp("us", tz="UTC")), rows.removes)


def of_decoded(rows: ComparedRows, refused: "set[int]") -> ComparedRows:
    """Returns ``rows`` without those whose numbers are in ``refused``."""
    if not refused:
        return rows
    kept: Array = pa.array([i not in refused for i in range(len(rows.held))])
    return replace_fields(rows, keys=rows.keys.filter(kept), held=rows.held.filter(kept))

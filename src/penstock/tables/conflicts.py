"""Retries a commit that conflicted with another writer of the same table: how often, after which
pause, and with which note or error.

Not here: what a conflict is (``delta``, ``parquet``). A conflict commits nothing, so the retry
computes the load from the table that the other writer left."""

import random
import time

import msgspec

from penstock.errors import DestinationError
from penstock.tables.contract import LoadResult, TableLoad

CONFLICT = "destination.conflict"
CONFLICT_TRIES = 8
_LONGEST_PAUSE = 5.0  # seconds


def pause_before_try(attempt: int) -> None:
    """Sleeps after try ``attempt`` (from 1): longer each time, by a random factor that keeps two
    writers apart."""
    time.sleep(min(0.1 * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.5))


def noted(done: LoadResult, load: TableLoad, attempt: int) -> LoadResult:
    """Returns ``done`` with a note for the report if a later try committed the load."""
    if attempt == 1:
        return done
    note = f"another writer changed table {load.table.name}: committed at try {attempt}"
    return msgspec.structs.replace(done, notes=(*done.notes, note))


def conflict(load: TableLoad, tries: int) -> DestinationError:
    """Makes the error for a load whose every try conflicted with another writer."""
    return DestinationError(
        f"other writers changed table {load.table.name} each time this load was committed "
        f"({tries} tries)",
        code="destination.conflict",
        where=load.table.name,
        hint="nothing is lost: run again, and the same load is repeated; preferably when the other "
        "writer is idle",
    )

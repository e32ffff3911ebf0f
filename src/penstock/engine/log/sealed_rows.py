"""Counts the rows that the log has sealed and no destination has yet, and gives them up.

A stopped or failed run has read them; the next one delivers them and reads on. Not here: what it
does with them (``engine.sync.backlog``). Neighbours: ``engine.run.run`` puts the counts into the
report; ``engine.run.log_place`` and ``engine.inspect.waiting_rows`` give rows up.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.engine.log.log import FileLog
from penstock.engine.log.retries import given_up_folder, mark_given_up
from penstock.errors import Cancelled, LogError, StateError
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.report import Report
from penstock.model.segments import SHARED_STATE, ConsumedSlice, Segment, StreamSlice
from penstock.store.contract import Lease, Store


def count_sealed(report: Report, store: Store, log: FileLog) -> None:
    """Fills in ``sealed`` of each stream. Leaves it at 0 where the store or log cannot be read: the
    report then has another error."""
    with suppress(StateError, LogError, Cancelled):
        rows = sealed_rows(store, report.pipeline, log)
        for line in report.streams:
            line.sealed = rows.get(StreamId(line.namespace, line.name), 0)


def give_up_sealed(store: Store, lease: Lease, log: FileLog, segments: Sequence[Segment]) -> None:
    """Gives up the rows of these segments that no load took, except retried rejects, which no
    source sends again. Raises ``LogError``."""
    taken = store.consumed(lease.pipeline, {s.id.epoch for s in segments})
    shares = (
        ConsumedSlice(segment.id, stream)
        for segment in segments
        for stream in (
            *(part.stream for part in segment.slices if not part.disposition.retried),
            SHARED_STATE,
        )
    )
    left = [share for share in shares if share not in taken]
    mark_given_up(given_up_folder(log.root), segments, left)
    store.abandon(lease, left)


def come_twice(store: Store, pipeline: str, log: FileLog) -> dict[StreamId, int]:
    """Returns the rows of each stream that an earlier run sealed, and that are appended though its
    state was reset or replaced since: their source may send them a second time."""
    floors = store.floors(pipeline)

    def twice(epoch: int, part: StreamSlice) -> bool:
        floor = max(floors.get(None, 0), floors.get(part.stream, 0))
        appends = part.disposition.mode is DestinationSyncMode.append
        again = not (part.fills_generation or part.disposition.retried)
        return epoch <= floor and appends and again

    return sealed_rows(store, pipeline, log, twice)


def sealed_rows(
    store: Store,
    pipeline: str,
    log: FileLog,
    wanted: Callable[[int, StreamSlice], bool] = lambda epoch, part: True,
) -> dict[StreamId, int]:
    """Returns the rows of each stream that are in the log and in no committed load. Excludes rows
    that were given up. ``wanted``: whether an epoch's share of a stream counts."""
    segments = log.segments()
    taken = store.consumed(pipeline, {s.id.epoch for s in segments})
    for group in store.open_groups(pipeline):  # a group takes its rows before they are loaded
        done = store.committed_loads(pipeline, group.id)
        for load in group.loads:
            if (load.key, load.number) not in done:
                taken -= {ConsumedSlice(segment, load.stream) for segment in load.segments}
    rows: dict[StreamId, int] = {}
    for segment in segments:
        for part in segment.slices:
            share = ConsumedSlice(segment.id, part.stream)
            if part.rows and share not in taken and wanted(segment.id.epoch, part):
                rows[part.stream] = rows.get(part.stream, 0) + part.rows
    return rows

"""Holds back the loads of streams with too many rejected records (L8, L9).

Decides over the groups of ``engine.deliver.load_plan``; ``engine.sync.backlog`` carries the result
out. A generation is judged by itself, once it is complete; for other streams, the rows that this
run has delivered and those that are ready count together. While a stream is read, what exceeds its
limit waits, since good records may follow. Changes that reading removes at the source (cdc) are
delivered whatever the limit: they cannot be read again. Retried rejects are not judged either,
since no source sends them again. A record of an incremental stream that an earlier run rejected
counts once (``engine.log.repeated_rejects``). Of a query that is compared with what was sent
before, the rows that are the same count as read and accepted.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.engine.deliver.load_plan import Pending
from penstock.engine.specs.observer import counted
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import SourceError
from penstock.model.catalog import StreamId, SyncMode
from penstock.model.rejected import MaxRejected
from penstock.model.segments import SHARED_STATE
from penstock.store.contract import GroupIntent, LoadIntent


@dataclass(slots=True)
class StreamCounts:
    """Counts of a stream's records."""

    read: int = 0
    rejected: int = 0
    filtered: int = 0

    def plus(self, load: LoadIntent) -> "StreamCounts":
        """Returns the sum with a load's counts."""
        return StreamCounts(
            self.read + load.read, self.rejected + load.rejected, self.filtered + load.filtered
        )

    def without(self, rejected: int) -> "StreamCounts":
        """Returns the counts less so many rejects."""
        return StreamCounts(self.read - rejected, self.rejected - rejected, self.filtered)


@dataclass(slots=True)
class ExceededLimit:
    """A stream that exceeds its limit. ``new``: the counts of its records that are not delivered.
    ``final``: no further records can bring it back under the limit. ``hint``: of its source.
    ``shared``: it shares its state with other streams."""

    stream: StreamId
    counts: StreamCounts
    new: StreamCounts
    limit: MaxRejected
    final: bool
    hint: str | None = None
    shared: bool = False

    def error(self) -> SourceError:
        """Returns the error that fails the stream."""
        read, rejected = self.counts.read, self.counts.rejected
        if not read:
            what = "every record was rejected, and the records name no stream"
        elif rejected >= read - self.counts.filtered:
            what = f"all of the {read} records that came were rejected"
            if self.counts.filtered:
                what = f"{rejected} records were rejected, and none was accepted"
        else:
            what = f"{rejected} of {read} records were rejected; max_rejected is {self.limit}"
        first = "" if self.hint is None else f"{self.hint}. "
        return SourceError(
            f"{self.stream}: {what}. Its table and its state stay as they were",
            code="source.rejected",
            hint=f"{first}`penstock rejects` shows them and why; `max_rejected` (or "
            "--max-rejected) sets how many may be rejected: a number, or a percentage; 100% lets "
            "the run pass",
            stream=str(self.stream),
        )


class LimitDecision(msgspec.Struct, frozen=True):
    """The decision. ``pending``: what may be delivered. ``over``: streams that are not delivered
    any more. ``lost``: streams over their limit that are still delivered, since they cannot be read
    again. ``repeated``: per stream that would be over its limit with them, its rejects that do not
    count."""

    pending: Pending
    over: tuple[ExceededLimit, ...] = ()
    lost: tuple[ExceededLimit, ...] = ()
    repeated: tuple[tuple[StreamId, int], ...] = ()


def repeated_note(stream: StreamId, rejected: int) -> str:
    """Returns the note for rejects that do not count."""
    return (
        f"{stream}: {counted(rejected, 'reject')} of earlier runs came again, as records that the"
        " source sends in each run; max_rejected does not count them again"
    )


class Rejections:
    """Judges the streams of one sync. ``limit``: for streams without one of their own. ``streams``:
    of this sync, including those planned later. ``repeated``: counts the rejects of loads that an
    earlier run rejected already."""

    def __init__(
        self,
        limit: MaxRejected,
        streams: Mapping[StreamId, PlannedStream],
        repeated: Callable[[StreamId, Sequence[LoadIntent]], int] = lambda stream, loads: 0,
    ) -> None:
        self._limit, self._streams, self._repeated = limit, streams, repeated
        self._delivered: dict[StreamId, StreamCounts] = {}
        self._not_sent: dict[StreamId, int] = {}

    def judge(
        self,
        pending: Pending,
        ended: Callable[[StreamId], bool],
        unnamed: Collection[int] = (),
    ) -> LimitDecision:
        """Decides which groups may be delivered. ``ended``: whether no more rows of a stream
        follow. ``unnamed``: epochs with rejects that name no stream: an empty generation may have
        lost its rows to them."""
        over: dict[StreamId, ExceededLimit] = {}
        lost: list[ExceededLimit] = []
        ready: defaultdict[StreamId, list[LoadIntent]] = defaultdict(list)
        repeated: list[tuple[StreamId, int]] = []
        for group in pending.ready:
            for load in group.loads:
                if load.disposition.retried:
                    continue
                if _by_itself(load, pending):
                    counts = StreamCounts().plus(load)
                    empty = not load.read and any(s.epoch in unnamed for s in load.segments)
                    empty = empty and self._of(load.stream).percent != 100
                    if empty or self._exceeds(load.stream, counts):
                        over[load.stream] = self._exceeded(load.stream, counts, counts, final=True)
                else:
                    ready[load.stream].append(load)
        for stream, loads in ready.items():
            new = StreamCounts()
            for load in loads:
                new = new.plus(load)
            counts, final = self._of_run(stream, new), ended(stream)
            if self._gone_at_source(stream):
                if final and self._exceeds(stream, counts):
                    lost.append(self._exceeded(stream, counts, new, final=True))
            elif stream not in over and self._exceeds(stream, counts):
                comes_again = final and self._may_overlap(stream)
                again = self._repeated(stream, loads) if comes_again else 0
                if again and not self._exceeds(stream, counts.without(again)):
                    repeated.append((stream, again))
                else:
                    over[stream] = self._exceeded(stream, counts, new, final=final)
        ready_now = _without(pending, over) if over else pending
        return LimitDecision(ready_now, tuple(over.values()), tuple(lost), tuple(repeated))

    def not_sent(self, stream: StreamId, rows: int) -> None:
        """Adds good rows that were compared and not sent, which count as read."""
        self._not_sent[stream] = rows

    def delivered(self, pending: Pending) -> None:
        """Adds the counts of what is now delivered."""
        for group in pending.ready:
            for load in group.loads:
                if not (load.disposition.retried or _by_itself(load, pending)):
                    before = self._delivered.get(load.stream, StreamCounts())
                    self._delivered[load.stream] = before.plus(load)

    def _of_run(self, stream: StreamId, new: StreamCounts) -> StreamCounts:
        """Returns the counts of what this run delivered, with what is ready."""
        before = self._delivered.get(stream, StreamCounts())
        return StreamCounts(
            before.read + new.read + self._not_sent.get(stream, 0),
            before.rejected + new.rejected,
            before.filtered + new.filtered,
        )

    def _exceeds(self, stream: StreamId, counts: StreamCounts) -> bool:
        return self._of(stream).exceeded(counts.read, counts.rejected, counts.filtered)

    def _exceeded(
        self, stream: StreamId, counts: StreamCounts, new: StreamCounts, *, final: bool
    ) -> ExceededLimit:
        return ExceededLimit(stream, counts, new, self._of(stream), final, self._hint(stream))

    def _of(self, stream: StreamId) -> MaxRejected:
        known = self._streams.get(stream)
        return self._limit if known is None or known.max_rejected is None else known.max_rejected

    def _hint(self, stream: StreamId) -> str | None:
        known = self._streams.get(stream)
        return None if known is None else known.configured.stream.reject_hint

    def _may_overlap(self, stream: StreamId) -> bool:
        """Whether a run may read records that the run before read: not a query that is compared
        with what was sent, which has all its rows each time."""
        known = self._streams.get(stream)
        if known is None or known.configured.stream.compared:
            return False
        return known.configured.sync_mode is SyncMode.incremental

    def _gone_at_source(self, stream: StreamId) -> bool:
        known = self._streams.get(stream)
        return known is not None and known.configured.sync_mode is SyncMode.cdc


def _by_itself(load: LoadIntent, pending: Pending) -> bool:
    """Whether the load is a whole generation, which is judged by itself."""
    return load.replaces or load.stream in pending.publishes


def _without(pending: Pending, over: Mapping[StreamId, ExceededLimit]) -> Pending:
    """Returns what does not depend on these streams: a group that stays holds back later groups
    that share a stream or a state with it."""
    behind, shut = set(over), False
    ready: list[GroupIntent] = []
    for group in pending.ready:
        streams = group.streams
        shares = any(stream == SHARED_STATE for _, stream in group.consumes)
        if streams & behind or (shares and shut):
            for stream in streams & over.keys():
                over[stream].shared |= shares or stream in pending.amid_shared
            behind |= streams
            shut |= shares
        else:
            ready.append(group)
    return msgspec.structs.replace(
        pending,
        ready=tuple(ready),
        publishes=pending.publishes - behind,
        activates=tuple(a for a in pending.activates if a[0] not in behind),
        refreshes=tuple(r for r in pending.refreshes if r[0] not in behind),
    )

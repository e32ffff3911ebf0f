"""Holds a source's states and stream statuses until the transform has emitted every row that they
cover.

Pure bookkeeping. A transform emits rows without naming their input. Only where it ends, or answers
for a number of input tables, do the rows so far certainly come from those tables and no others. A
state passes only there. A state that would also cover rows made from later records is dropped in
favour of the next one of its scope. Where its stream has ended, it passes as the last and leaves
the rows after it uncovered (L1, L2). Checkpoints of the transform's own keys pass after the rows
they belong to, and before what covers those rows. Neighbours:
``engine.worker.transforms.connector`` calls it, ``engine.worker.sealer`` gets what passes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.model.catalog import StreamId
from penstock.model.events import Batch, State, StreamStatus

STATE_BYTES = 16 << 20  # of states that wait; above, only the newest of each scope is kept
MOST_STATES = 256

Deferred = State | StreamStatus | Batch
"""A ``Batch`` here has no rows: it counts source records, or has a checkpoint of keys."""


@dataclass(slots=True)
class _Flow:
    """A stream's progress through the transform, in input tables. ``through``: all rows made from
    this many tables are emitted; ``clean``: in addition, none made from a later one is (None:
    unknown)."""

    fed: int = 0
    through: int = 0
    clean: int | None = 0
    ended: bool = False


@dataclass(slots=True)
class _Item:
    """An event that waits. ``at``: tables that had been fed before it, by stream. ``stream`` None:
    it concerns all streams."""

    event: Deferred
    stream: StreamId | None
    at: dict[StreamId, int] = field(default_factory=dict[StreamId, int])


class EventBarrier:
    """The waiting events. Call the methods in the order of events; then take what :meth:`ready`
    returns."""

    def __init__(self) -> None:
        self._flows: dict[StreamId, _Flow] = {}
        self._items: list[_Item] = []
        self._failed: set[StreamId] = set()
        self._counts: dict[StreamId, _Item] = {}  # counts that a later count may be joined with
        self._states: list[int] = []  # bytes
        self._over = False

    # -- from the source

    def fed(self, stream: StreamId, count: Batch | None = None) -> None:
        """Notes that one more table was fed to the transform; ``count`` has the number of its
        records."""
        flow = self._flows.setdefault(stream, _Flow())
        flow.fed += 1
        flow.ended = False
        if count is not None:
            self.read(count)

    def read(self, count: Batch) -> None:
        """Adds a count of records, which passes once all rows of the tables fed before it are
        emitted."""
        stream = count.stream
        item = _Item(count, stream, self._at(stream))
        if not self._joined(item):
            self._items.append(item)

    def state(self, state: State) -> None:
        """Adds a state; ignored where it covers a stream that failed."""
        stream = state.scope.stream
        if self._failed and (stream is None or stream in self._failed):
            return  # it covers rows that are lost
        self._stand(_Item(state, stream, self._at(stream)))
        self._states.append(len(state.blob))
        if len(self._states) > MOST_STATES or sum(self._states) > STATE_BYTES:
            self._drop_older(lambda _: True)

    def status(self, status: StreamStatus) -> None:
        """Adds the status with which a stream ended."""
        if status.stream not in self._failed:
            self._stand(_Item(status, status.stream, self._at(status.stream)))

    # -- from the transform

    def came(self, stream: StreamId) -> None:
        """Notes that the transform has emitted rows."""
        flow = self._flows[stream]
        if flow.clean is not None and flow.clean < flow.fed:
            flow.clean = None

    def through(self, stream: StreamId, upto: int) -> None:
        """Notes that all rows made from the stream's first ``upto`` tables are emitted, and none
        made from later ones."""
        flow = self._flows[stream]
        flow.through = flow.clean = upto

    def kept(self, batch: Batch) -> None:
        """Adds a checkpoint of the transform's keys for the tables whose rows are emitted."""
        stream = batch.stream
        upto = self._flows[stream].through

        def covers(item: _Item) -> bool:
            speaks = item.stream in {None, stream} and not isinstance(item.event, Batch)
            return speaks and item.at.get(stream, 0) >= upto

        place = next((n for n, item in enumerate(self._items) if covers(item)), len(self._items))
        self._items.insert(place, _Item(batch, stream, {stream: upto}))
        self._tidy()

    def ended(self, stream: StreamId) -> None:
        """Notes that the transform's run over this stream ended successfully."""
        self.through(stream, self._flows[stream].fed)
        self._flows[stream].ended = True

    def failed(self, stream: StreamId) -> None:
        """Notes that rows of the stream are lost: no state that covers them may pass, now or later
        (L1)."""
        self._failed.add(stream)
        self._items = [
            item
            for item in self._items
            if isinstance(item.event, Batch)
            or (item.stream is not None and item.stream not in self._failed)
        ]
        self._tidy()

    def over(self) -> None:
        """Notes that the source and every run have ended."""
        self._over = True

    # -- what may pass

    def ready(self) -> list[Deferred]:
        """Returns the events that may pass, in order, each once."""
        self._drop_passed_by()
        out: list[Deferred] = []
        kept: list[_Item] = []
        blocked: set[StreamId] = set()
        all_blocked = False
        for item in self._items:
            before = all_blocked or (bool(blocked) if item.stream is None else False)
            if not before and item.stream not in blocked and self._free(item):
                out.append(self._given(item))
                continue
            kept.append(item)
            if item.stream is None:
                all_blocked = True
            else:
                blocked.add(item.stream)
        self._items = kept
        if out:
            self._tidy()
        return out

    def empty(self) -> bool:
        """Whether no event waits."""
        return not self._items

    # -- inside

    def _at(self, stream: StreamId | None) -> dict[StreamId, int]:
        if stream is None:
            return {name: flow.fed for name, flow in self._flows.items()}
        flow = self._flows.get(stream)
        return {} if flow is None else {stream: flow.fed}

    def _relevant(self, item: _Item) -> dict[StreamId, _Flow]:
        if item.stream is None:
            return self._flows
        flow = self._flows.get(item.stream)
        return {} if flow is None else {item.stream: flow}

    def _free(self, item: _Item) -> bool:
        flows = self._relevant(item)
        match item.event:
            case Batch():
                failed = item.stream in self._failed
                return failed or all(f.through >= item.at.get(s, 0) for s, f in flows.items())
            case StreamStatus():
                return all(f.ended for f in flows.values())
            case State():
                exact = all(f.clean == item.at.get(s, 0) for s, f in flows.items())
                return exact or self._last(flows, item)

    def _last(self, flows: dict[StreamId, _Flow], item: _Item) -> bool:
        """Whether no better point can follow: every stream concerned has ended."""
        return all(f.ended for f in flows.values()) and (item.stream is not None or self._over)

    def _drop_passed_by(self) -> None:
        """Drops states that later rows have overtaken, where a newer one of their scope waits."""

        def passed(item: _Item) -> bool:
            return any(f.through > item.at.get(s, 0) for s, f in self._relevant(item).items())

        self._drop_older(passed)

    def _drop_older(self, unless_newest: Callable[[_Item], bool]) -> None:
        """Drops states for which ``unless_newest`` holds, except the newest of each scope."""
        newer: set[StreamId | None] = set()
        kept: list[_Item] = []
        for item in reversed(self._items):
            if isinstance(item.event, State):
                if item.stream in newer and unless_newest(item):
                    continue
                newer.add(item.stream)
            kept.append(item)
        if len(kept) < len(self._items):
            self._items = kept[::-1]
            self._tidy()

    def _stand(self, item: _Item) -> None:
        """Adds an item that counts do not cross: later counts are not joined with earlier ones."""
        self._items.append(item)
        if item.stream is None:
            self._counts.clear()
        else:
            self._counts.pop(item.stream, None)

    def _joined(self, item: _Item) -> bool:
        """Adds a count to the newest count of its stream, if no other item lies between. Returns
        whether it did."""
        new, stream = item.event, item.stream
        if not isinstance(new, Batch) or stream is None:
            return False
        last = self._counts.get(stream)
        if last is None or not isinstance(last.event, Batch) or last.event.version != new.version:
            self._counts[stream] = item
            return False
        last.event.stands_for = last.event.read + new.read
        last.event.filtered += new.filtered
        last.event.size += new.size
        last.event.keys = _newest((*last.event.keys, *new.keys))
        last.at = {stream: max(last.at.get(stream, 0), item.at.get(stream, 0))}
        return True

    def _tidy(self) -> None:
        """Joins adjacent counts after items between them have gone."""
        items, self._items = self._items, []
        self._counts.clear()
        self._states = [len(i.event.blob) for i in items if isinstance(i.event, State)]
        for item in items:
            if isinstance(item.event, Batch):
                if not self._joined(item):
                    self._items.append(item)
            else:
                self._stand(item)

    def _given(self, item: _Item) -> Deferred:
        """Returns the item's event; the keys of a stream whose rows are lost are removed."""
        if isinstance(item.event, Batch) and item.stream in self._failed:
            item.event.keys = ()
        return item.event


def _newest(keys: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(dict(sorted(keys)).items())

"""What a source said of its streams, held back until all that it speaks of has come out of a
transform.

Pure bookkeeping. A transform gives rows and does not say of which; only where it ends, or makes a
checkpoint, is it known that the rows so far are those of so many tables and of no others. A state
passes there and nowhere else: one that would take rows with it that came after it is given up for
the next one of its scope, or, where its stream has ended, passes as the last and leaves what came
after it uncovered (L1, L2). What transforms kept for themselves passes behind the rows that it is
of, ahead of what covers them. Neighbours: ``engine.worker.transforms.connector`` asks,
``engine.worker.sealer`` is told.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.model.catalog import StreamId
from penstock.model.events import Batch, State, StreamStatus

STATE_BYTES = 16 << 20  # of states that wait; above, only the newest of each scope is kept
MOST_STATES = 256

Held = State | StreamStatus | Batch
"""A ``Batch`` without rows counts records of the source, or has what transforms kept."""


@dataclass(slots=True)
class _Flow:
    """A stream's way through the transform, in tables. ``through``: all that comes of so many is
    out; ``clean``: and nothing that comes of a later one (None: nobody knows)."""

    fed: int = 0
    through: int = 0
    clean: int | None = 0
    ended: bool = False


@dataclass(slots=True)
class _Item:
    """``at``: tables that had been fed when it came, by stream. ``stream`` None: it speaks of
    all."""

    event: Held
    stream: StreamId | None
    at: dict[StreamId, int] = field(default_factory=dict[StreamId, int])


class Waiting:
    """Call in the order in which things happen; then take what :meth:`ready` gives."""

    def __init__(self) -> None:
        self._flows: dict[StreamId, _Flow] = {}
        self._items: list[_Item] = []
        self._failed: set[StreamId] = set()
        self._counts: dict[StreamId, _Item] = {}  # the newest, where nothing stands behind it
        self._states: list[int] = []  # bytes
        self._over = False

    # -- from the source

    def fed(self, stream: StreamId, count: Batch | None = None) -> None:
        """One table more was fed; ``count`` says of how many records."""
        flow = self._flows.setdefault(stream, _Flow())
        flow.fed += 1
        flow.ended = False
        if count is not None:
            self.read(count)

    def read(self, count: Batch) -> None:
        """Records that are counted once all that was fed before is out."""
        stream = count.stream
        item = _Item(count, stream, self._at(stream))
        if not self._joined(item):
            self._items.append(item)

    def state(self, state: State) -> None:
        stream = state.scope.stream
        if self._failed and (stream is None or stream in self._failed):
            return  # it covers rows that are lost
        self._stand(_Item(state, stream, self._at(stream)))
        self._states.append(len(state.blob))
        if len(self._states) > MOST_STATES or sum(self._states) > STATE_BYTES:
            self._drop_older(lambda _: True)

    def status(self, status: StreamStatus) -> None:
        """It has come to its end."""
        if status.stream not in self._failed:
            self._stand(_Item(status, status.stream, self._at(status.stream)))

    # -- from the transform

    def came(self, stream: StreamId) -> None:
        """Rows have come out."""
        flow = self._flows[stream]
        if flow.clean is not None and flow.clean < flow.fed:
            flow.clean = None

    def through(self, stream: StreamId, upto: int, *, whole: bool) -> None:
        """All that comes of the first ``upto`` tables of the stream is out; ``whole``: and no
        more."""
        flow = self._flows[stream]
        flow.through, flow.clean = upto, upto if whole else None

    def kept(self, batch: Batch) -> None:
        """What the transform kept for itself while it worked on the tables that are through."""
        stream = batch.stream
        upto = self._flows[stream].through

        def covers(item: _Item) -> bool:
            speaks = item.stream in {None, stream} and not isinstance(item.event, Batch)
            return speaks and item.at.get(stream, 0) >= upto

        place = next((n for n, item in enumerate(self._items) if covers(item)), len(self._items))
        self._items.insert(place, _Item(batch, stream, {stream: upto}))
        self._tidy()

    def ended(self, stream: StreamId) -> None:
        """The run of this stream ended well."""
        self.through(stream, self._flows[stream].fed, whole=True)
        self._flows[stream].ended = True

    def failed(self, stream: StreamId) -> None:
        """Rows of it are lost: nothing that covers them may pass, now or later."""
        self._failed.add(stream)
        self._items = [
            item
            for item in self._items
            if isinstance(item.event, Batch)
            or (item.stream is not None and item.stream not in self._failed)
        ]
        self._tidy()

    def over(self) -> None:
        """The source has ended, and every run."""
        self._over = True

    # -- what may pass

    def ready(self) -> list[Held]:
        """In order, each once."""
        self._drop_passed_by()
        out: list[Held] = []
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
        """There is nothing better to wait for."""
        return all(f.ended for f in flows.values()) and (item.stream is not None or self._over)

    def _drop_passed_by(self) -> None:
        """States that rows after them have overtaken: a newer one of their scope waits."""

        def passed(item: _Item) -> bool:
            return any(f.through > item.at.get(s, 0) for s, f in self._relevant(item).items())

        self._drop_older(passed)

    def _drop_older(self, unless_newest: Callable[[_Item], bool]) -> None:
        """States for which this holds, but for the newest of each scope."""
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
        """Counts of what comes after it are not joined with those of before."""
        self._items.append(item)
        if item.stream is None:
            self._counts.clear()
        else:
            self._counts.pop(item.stream, None)

    def _joined(self, item: _Item) -> bool:
        """With the counts that stand before it, if it can be."""
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
        """Where items have gone: what now stands side by side is one."""
        items, self._items = self._items, []
        self._counts.clear()
        self._states = [len(i.event.blob) for i in items if isinstance(i.event, State)]
        for item in items:
            if isinstance(item.event, Batch):
                if not self._joined(item):
                    self._items.append(item)
            else:
                self._stand(item)

    def _given(self, item: _Item) -> Held:
        """Nothing is kept of rows that are lost."""
        if isinstance(item.event, Batch) and item.stream in self._failed:
            item.event.keys = ()
        return item.event


def _newest(keys: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(dict(sorted(keys)).items())

"""A destination connector in memory that is fed by ``engine.deliver.connector_delivery``, and that
acks as it is told to.

Real: ``PushDelivery`` and what an ack covers (``engine.worker.ack_tracker``). Twins: the push task
and the destination. Each row that is given, each order and each ack is a step. Neighbour:
``simulation``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from scripted import Rows
from simulation import Scenario, SyncOutcome, Tally, World, run_once

from penstock.engine.deliver.connector_delivery import PushDelivery
from penstock.engine.deliver.delivery import Delivery
from penstock.engine.deliver.session import SyncSession
from penstock.engine.deliver.unacked import SentMarks
from penstock.engine.specs.feeder import AckedSegments, FeedOrder, PushEnd, PushResult
from penstock.engine.worker.ack_tracker import FedSegments
from penstock.errors import DestinationError, LogError
from penstock.model.catalog import StreamId
from penstock.model.segments import ConsumedSlice, Segment, SegmentId
from penstock.protocols.writing import END
from penstock.store.contract import Lease, LoadIntent

Row = tuple[int, int, int]


@dataclass(frozen=True)
class Manner:
    """``acks``: at_once | late (a mark later) | end (its marks, once its input has ended) | at_end
    (exit code 0) | never. ``dies``, ``lost``: after so many rows, or where they are 0 once its
    input has ended, before it acks. ``again``: it says that it may be tried again. ``halts``: it
    stops each stream (``only``: this one) after so many rows of it, and nothing is wrong."""

    acks: str = "at_once"
    dies: int | None = None
    lost: int | None = None
    again: bool = False
    halts: int | None = None
    only: str | None = None


GOOD = Manner()


@dataclass
class Target:
    """What outlives the destination's process. ``manners``: of its runs in turn, then it is good.
    ``forgets``: what was not acked is gone when it dies, else it is kept. ``rejects``: it says of
    the first row of each stream in each run that it was rejected, with the next ack of any.
    ``damaged``: the stream whose parts its feeder finds damaged."""

    manners: list[Manner] = field(default_factory=list[Manner])
    forgets: bool = False
    described_once: bool = False
    quantum: int = 2
    rejects: bool = False
    damaged: str | None = None
    given: list[tuple[StreamId, Row]] = field(default_factory=list[tuple[StreamId, Row]])
    has: dict[StreamId, list[tuple[int, Row]]] = field(
        default_factory=dict[StreamId, list[tuple[int, Row]]]
    )
    runs: int = 0

    def keep(self, stream: StreamId, generation: int, row: Row) -> None:
        self.has.setdefault(stream, []).append((generation, row))

    def done(self, stream: StreamId, generation: int) -> None:
        """A generation is whole: those before it go."""
        kept = [r for r in self.has.get(stream, []) if r[0] == generation]
        self.has[stream] = kept

    def rows(self, stream: str) -> list[tuple[int, int]]:
        """Each once."""
        return sorted({(r[0], r[1]) for _, r in self.has.get(StreamId(None, stream), [])})


class SimSent(SentMarks):
    def __init__(self, world: World) -> None:
        self._world = world
        super().__init__()

    def _read(self) -> set[object]:
        return set(self._world.sent)

    def _write(self) -> None:
        self._world.step("sent.before")
        self._world.sent = set(self._marks)
        self._world.step("sent.after")


class SimConversation:
    """``engine.deliver.connector_delivery.Conversation``: its destination takes ``quantum`` items
    at each poll."""

    def __init__(
        self, world: World, target: Target, lease: Lease, told: dict[StreamId, set[int]]
    ) -> None:
        self._world, self._target, self._lease, self._told = world, target, lease, told
        self._manner = target.manners[target.runs] if target.runs < len(target.manners) else GOOD
        target.runs += 1
        self._cover = FedSegments()
        self._orders: list[FeedOrder] = []
        self._acked: list[AckedSegments] = []
        self._marks: list[int] = []
        self._scopes: dict[int, str] = {}
        self._waiting: list[tuple[str, StreamId, int, Row]] = []  # not durable
        self._fed: dict[StreamId, int] = {}
        self._halted: set[StreamId] = set()
        self._rejected: list[tuple[StreamId, int]] = []
        self._missing = False
        self._hurt: str | None = None
        self._result: PushResult | None = None
        self._work_left = self._work()

    # -- the driver's side

    def takes(self, loads: Sequence[LoadIntent]) -> bool:
        return not (self._target.described_once and self._lacks(loads))

    def changes(self, loads: Sequence[LoadIntent]) -> FeedOrder:
        for load in self._lacks(loads):
            self._told.setdefault(load.stream, set()).add(load.schema_version)
        return FeedOrder()

    def _lacks(self, loads: Sequence[LoadIntent]) -> list[LoadIntent]:
        return [x for x in loads if x.schema_version not in self._told.get(x.stream, ())]

    def order(self, order: FeedOrder) -> None:
        self._world.step("push.order.before")
        self._orders.append(order)
        self._world.step("push.order.after")

    def acks(self) -> list[AckedSegments]:
        found, self._acked = self._acked, []
        return found

    def cancel(self) -> None:
        raise AssertionError("nobody cancels")

    def poll(self) -> PushResult | None:
        for _ in range(self._target.quantum):
            if self._result is None:
                self._result = next(self._work_left)
        return self._result

    # -- the destination's

    def _work(self) -> Iterator[PushResult | None]:
        while True:
            while not self._orders:
                yield None
            order = self._orders.pop(0)
            for segment in order.segments:
                for _ in self._give(segment):
                    if (end := self._broken(sum(self._fed.values()))) is not None:
                        yield end
                        return
                    yield None
                if self._hurt is not None:
                    error = LogError("a part is damaged", code="log.corrupt", stream=self._hurt)
                    yield self._told_end(PushEnd.failed, [error.as_dict()])
                    return
                if self._missing:
                    error = LogError("a part is missing", code="log.corrupt")
                    yield self._told_end(PushEnd.failed, [error.as_dict()])
                    return
                self._mark(segment)
                yield None
            for stream in order.done:
                self._done(stream, order)
            if order.end:
                yield self._end()
                return

    def _give(self, segment: Segment) -> Iterator[None]:
        self._cover.begin(segment.id)
        scope = "" if segment.scope is None else segment.scope.key
        for one in segment.slices:
            assert one.schema_version in self._told[one.stream]
            for part in one.parts:
                self._never_settled(part.path, one.stream)
                if part.path not in self._world.log.parts:  # the driver was overtaken
                    self._missing = True
                    return
                if one.stream.name == self._target.damaged:
                    self._hurt = str(one.stream)
                    return
                rows: Rows = self._world.log.parts[part.path]
                for row in rows:
                    if one.stream in self._halted:
                        break
                    self._world.step("push.row.before")
                    self._target.given.append((one.stream, row))
                    self._fed[one.stream] = self._fed.get(one.stream, 0) + 1
                    if self._target.rejects and self._fed[one.stream] == 1:
                        self._rejected.append((one.stream, 1))
                    self._waiting.append((scope, one.stream, one.generation, row))
                    if not self._target.forgets:
                        self._flush(all_of_it=True)
                    stops = self._manner.only in (None, one.stream.name)
                    if stops and self._fed[one.stream] == self._manner.halts:
                        self._halt(one.stream)
                    self._world.step("push.row.after")
                    yield

    def _halt(self, stream: StreamId) -> None:
        """Nothing more of it is taken, and its marks, or those that it shares, are not acked."""
        self._halted.add(stream)
        self._waiting = [item for item in self._waiting if item[1] != stream]
        self._marks = [n for n in self._marks if self._scopes[n] not in ("*", stream.key)]

    def _never_settled(self, path: str, stream: StreamId) -> None:
        """What was acked and settled is never given again, but by a driver that was overtaken."""
        world = self._world
        if world.holder == self._lease.token:
            owner = next(s.id for s in world.sealed.values() for x in s.slices for p in x.parts
                         if p.path == path)  # fmt: skip
            assert ConsumedSlice(owner, stream) not in world.store.consumed("sim", {owner.epoch})

    def _mark(self, segment: Segment) -> None:
        number = self._cover.fed(segment)
        if number is None or segment.scope is None:
            return
        if self._halted and (segment.scope.stream is None or segment.scope.stream in self._halted):
            return
        self._scopes[number] = segment.scope.key
        self._marks.append(number)
        while self._marks and (
            self._manner.acks == "at_once" or (self._manner.acks == "late" and len(self._marks) > 1)
        ):
            self._ack(self._marks.pop(0))

    def _ack(self, number: int) -> None:
        covered = self._cover.acked(number)
        self._flush(all_of_it=number == END, scope=self._scopes.get(number))
        if covered:
            self._says(covered)

    def _says(self, covered: Sequence[SegmentId]) -> None:
        rejected, self._rejected = tuple(self._rejected), []
        self._acked.append(AckedSegments(segments=tuple(covered), rejected=rejected))

    def _flush(self, *, all_of_it: bool, scope: str | None = None) -> None:
        later: list[tuple[str, StreamId, int, Row]] = []
        for item in self._waiting:
            if all_of_it or item[0] == scope:
                self._target.keep(*item[1:])
            else:
                later.append(item)
        self._waiting = later

    def _done(self, stream: StreamId, order: FeedOrder) -> None:
        """The destination swaps once it is told that the stream is complete."""
        whole = [x for s in order.segments for x in s.slices if x.stream == stream and x.complete]
        for one in whole:
            if one.fills_generation and stream not in self._halted:
                self._flush(all_of_it=True)
                self._target.done(stream, one.generation)

    def _broken(self, fed: int) -> PushResult | None:
        if self._manner.lost is not None and fed >= self._manner.lost > 0:
            return self._lost()
        if self._manner.dies is not None and fed >= self._manner.dies > 0:
            return self._died()
        return None

    def _lost(self) -> PushResult:
        error = DestinationError("the worker is gone", code="lane.lost")
        return PushResult(end=PushEnd.lost, errors=[error.as_dict()])

    def _died(self) -> PushResult:
        error = DestinationError("exit code 1", code="destination.exited")
        result = self._told_end(PushEnd.failed, [error.as_dict()])
        return msgspec.structs.replace(result, retry=0.0 if self._manner.again else None)

    def _told_end(self, end: PushEnd, errors: list[dict[str, object]]) -> PushResult:
        return PushResult(
            end=end,
            fed=sorted(self._fed.items()),
            unacked=self._cover.left(),
            errors=errors,
            halted=[(stream, "the quota is used up") for stream in sorted(self._halted)],
        )

    def _end(self) -> PushResult:
        if self._manner.lost == 0:
            return self._lost()
        if self._manner.dies == 0:
            return self._died()
        if self._manner.acks in ("late", "end", "at_once"):
            while self._marks:
                self._ack(self._marks.pop(0))
        self._flush(all_of_it=True)
        if self._halted:
            others = sorted(self._told.keys() - self._halted)
            left = [segment for s in others for segment in self._cover.stream_acked(s)]
        elif self._manner.acks == "at_end":
            left = self._cover.acked(END)
        else:
            left = self._cover.ended_well()
        if left:
            self._says(left)
        return self._told_end(PushEnd.finished, [])


class SimFeeder:
    """``engine.deliver.connector_delivery.Feeder``."""

    def __init__(self, world: World, target: Target, lease: Lease, scenario: Scenario) -> None:
        self._world, self._target, self._lease = world, target, lease
        self._plan = [StreamId(None, name) for name in scenario.records]

    def keys_task(self) -> str | None:
        return None

    def start(self, streams: Iterable[StreamId], attempt: int) -> SimConversation:
        store = self._world.store
        told = {s: {*store.schemas("sim", s)} for s in [*self._plan, *streams]}
        return SimConversation(self._world, self._target, self._lease, told)

    def cancelled(self) -> bool:
        return False


def push_once(world: World, target: Target, scenario: Scenario, tally: Tally) -> SyncOutcome:
    """One program that feeds this destination."""

    def delivery(world: World, scenario: Scenario, session: SyncSession) -> Delivery:
        feeder = SimFeeder(world, target, session.lease, scenario)
        return PushDelivery(session, feeder, SimSent(world))

    return run_once(world, scenario, take_over=True, delivery=delivery, tally=tally)

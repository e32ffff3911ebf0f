"""Delivers rows into a destination connector: feeds rows to it, and saves the states when it acks
them.

At least once: a group of loads is settled in the ledger when the destination has acked it, so the
next run feeds again what was fed and not acked. A *conversation* is one run of the destination,
from its first order to the end of its input. There is one at a time, and none before there are
rows.

Neighbours: ``engine.deliver.delivery`` has the contract and the delivery into tables;
``engine.deliver.feeder_runner`` runs a conversation as a Spark job; ``engine.worker.feeder`` is its
process.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.engine.deliver.delivery import LaneWatcher, Preconditions
from penstock.engine.deliver.load_plan import Pending
from penstock.engine.deliver.part_checks import PartCheck
from penstock.engine.deliver.session import SyncSession
from penstock.engine.deliver.unacked import SentMarks
from penstock.engine.specs.failpoints import reach
from penstock.engine.specs.feeder import AckedSegments, FeedOrder, PushEnd, PushResult
from penstock.errors import Cancelled, DestinationError, PenstockError
from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId
from penstock.model.segments import (
    SHARED_STATE,
    ConsumedSlice,
    Load,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.model.state import StateScope, StateType
from penstock.store.contract import GroupIntent, LoadIntent
from penstock.store.keys import CoveredKeys
from penstock.tables.contract import LoadResult

STOP_SECONDS = 30.0  # for a destination that is stopping

JoinsBy = tuple[DestinationSyncMode, tuple[FieldPath, ...]]
"""The mode and the primary key (cleaned names) of a load."""


class Conversation(Protocol):
    """The contract of one run of a destination connector."""

    def takes(self, loads: Sequence[LoadIntent]) -> bool:
        """Whether these loads can be fed. Not where they have a stream or a schema that this
        destination must get at its start, or where they join under another mode or key than it was
        given."""
        ...

    def changes(self, loads: Sequence[LoadIntent]) -> FeedOrder:
        """Returns an order with the streams of these loads that are new to the destination, or
        whose schema is new."""
        ...

    def order(self, order: FeedOrder) -> None:
        """Writes the next order."""
        ...

    def acks(self) -> list[AckedSegments]:
        """Returns the acks since the last call, in order."""
        ...

    def poll(self) -> PushResult | None:
        """Returns the result; None while it runs. Stores a configuration that the connector changed
        (CONTROL)."""
        ...

    def cancel(self) -> None:
        """Requests the destination's process to stop."""
        ...


class Feeder(Protocol):
    """Starts conversations."""

    def keys_task(self) -> str | None:
        """Returns the name under which the next conversation writes connector keys; None: it keeps
        none."""
        ...

    def start(self, streams: Mapping[StreamId, WriteDisposition], attempt: int) -> Conversation:
        """Starts a conversation. ``streams``: those with rows, and how their rows join the table;
        the streams of the plan are added. ``attempt``: from 1; higher where the conversation before
        failed and may be tried again."""
        ...

    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        ...


class _Flight(msgspec.Struct, frozen=True):
    """A group that was ordered and is not acked. ``segment``: as it was ordered."""

    group: GroupIntent
    publishes: frozenset[StreamId]
    segment: Segment


class PushDelivery:
    """Implements ``engine.deliver.delivery.Delivery`` for a destination connector."""

    ack_per_state = True  # so that acked rows of a long backlog are not sent again

    def __init__(
        self,
        session: SyncSession,
        feeder: Feeder,
        sent: SentMarks,
        check: PartCheck | None = None,
    ) -> None:
        self._session, self._feeder, self._sent = session, feeder, sent
        self._store, self._lease = session.store, session.lease
        self._observer, self._failures = session.observer, session.failures
        self._preconditions = Preconditions(session, check)
        self._conversation: Conversation | None = None
        self._flying: dict[SegmentId, _Flight] = {}
        self._done: set[StreamId] = set()
        self._ended = False  # the end of the input was ordered
        self._dead = False
        self._fed_before = sent.before()
        self._number = 0
        self._published: set[StreamId] = set()
        self._task: str | None = None
        self._attempt = 1
        self._again_at: float | None = None
        self._filtered: dict[StreamId, int] = {}  # by the destination, not yet counted in a load
        self._rejected: dict[StreamId, int] = {}  # likewise

    def repeat(self, meanwhile: LaneWatcher) -> None:
        """No-op: a group is written to the ledger when it is acked, not before."""

    def deliver(self, pending: Pending, meanwhile: LaneWatcher) -> None:
        ready = [] if self._dead else self._preconditions.passed(pending, meanwhile)
        for groups in _by_key(ready):
            if not self._deliver(groups, pending, meanwhile):
                return
        for stream, _, _ in pending.activates if ready else ():
            if stream not in self._failures.blocked:
                self._observer.note(
                    f"{stream}: a new version replaced its rows at the source; the destination "
                    "got the new rows and keeps the old"
                )

    def _deliver(
        self, ready: Sequence[GroupIntent], pending: Pending, meanwhile: LaneWatcher
    ) -> bool:
        """Orders these groups in one conversation, except those that an earlier conversation
        blocked. Returns False where no conversation is possible now."""
        self._while_it(meanwhile, self._will_begin_again)
        if self._dead or self._again_at is not None:
            return False
        ready = self._unblocked(ready, pending)
        loads = self._begun([load for group in ready for load in group.loads])
        if self._conversation is not None and not self._conversation.takes(loads):
            self.flush(meanwhile)
            if self._dead or self._again_at is not None:
                return False
            ready = self._unblocked(ready, pending)
            loads = self._begun([load for group in ready for load in group.loads])
        if not ready:
            return True
        self._preconditions.announce(segment for group in ready for segment, _ in group.consumes)
        if self._conversation is None:
            self._attempt = 1
            self._conversation = self._begin(loads)
            self._ended, self._done = False, set()
        self._sent.add(item for group in ready for item in _consumed(group))
        self._count_again(loads)
        segments = [self._fly(group, pending) for group in ready]
        order = self._conversation.changes(loads)
        done = [load.stream for load in loads if load.stream in pending.publishes]
        self._done.update(done)
        self._conversation.order(
            msgspec.structs.replace(order, segments=tuple(segments), done=tuple(done))
        )
        reach("after-order")
        return True

    def _unblocked(self, groups: Sequence[GroupIntent], pending: Pending) -> list[GroupIntent]:
        failures = self._failures
        return [
            group
            for group in groups
            if not group.streams & failures.blocked.keys()
            and not (failures.shared_blocked and _scope(group, pending).stream is None)
        ]

    def _fly(self, group: GroupIntent, pending: Pending) -> Segment:
        """Returns a group in the form of an order: one segment under a number of its own."""
        self._number += 1
        number = SegmentId(group.epoch, self._number)
        published = pending.publishes & {load.stream for load in group.loads}
        segment = Segment(
            id=number,
            lane=0,
            scope=_scope(group, pending),
            slices=tuple(_slice(load, complete=load.stream in published) for load in group.loads),
            state=group.states[-1].blob if group.states else None,
        )
        self._flying[number] = _Flight(group, published, segment)
        return segment

    def _begun(self, loads: Sequence[LoadIntent], *, again: bool = False) -> list[LoadIntent]:
        """Returns the loads. Only those that begin their stream's epoch stay ``anew``: a
        destination must not treat the later rows as the whole stream. ``again``: what is under way
        is sent again."""
        if not any(load.disposition.anew for load in loads):
            return list(loads)
        epochs = {segment.epoch for load in loads for segment in load.segments}
        taken = self._store.consumed(self._session.pipeline, epochs)
        taken |= set() if again else self.under_way()
        begun = {(item.segment.epoch, item.stream) for item in taken}
        return [
            _not_anew(load)
            if any((segment.epoch, load.stream) in begun for segment in load.segments)
            else load
            for load in loads
        ]

    def _begin(self, loads: Sequence[LoadIntent]) -> Conversation:
        self._task = self._feeder.keys_task()
        if self._task is not None:
            self._store.begin_keys(self._lease, self._task)
        return self._feeder.start({load.stream: load.disposition for load in loads}, self._attempt)

    def _begin_again(self) -> None:
        """Starts the next attempt and orders what the destination did not ack, in the same order;
        then the completed streams, and the end if it was ordered."""
        self._again_at = None
        loads = self._begun(
            [load for flight in self._flying.values() for load in flight.group.loads], again=True
        )
        self._sent.add(item for flight in self._flying.values() for item in _consumed(flight.group))
        conversation = self._conversation = self._begin(loads)
        order = conversation.changes(loads)
        segments = tuple(flight.segment for flight in self._flying.values())
        done = tuple(sorted(self._done))
        conversation.order(msgspec.structs.replace(order, segments=segments, done=done))
        if self._ended:
            conversation.order(FeedOrder(end=True))

    def _count_again(self, loads: Sequence[LoadIntent]) -> None:
        for load in loads:
            if any(
                ConsumedSlice(segment, load.stream) in self._fed_before for segment in load.segments
            ):
                self._observer.sent_again(load.stream, sum(p.rows for p in load.parts))

    # -- acks

    def poll(self) -> None:
        again_at = self._again_at
        if again_at is not None and time.monotonic() >= again_at and self._will_begin_again():
            self._begin_again()
        conversation = self._conversation
        if conversation is None:
            return
        result = conversation.poll()
        for acked in conversation.acks():
            self._settle(acked)
        if result is not None:
            self._over(result)

    def _settle(self, acked: AckedSegments) -> None:
        flights = [self._flying[s] for s in acked.segments if s in self._flying]
        if not flights:
            return
        self._session.rejects.keep_files(acked.rejects, self._epochs())
        for counts, new in ((self._filtered, acked.filtered), (self._rejected, acked.rejected)):
            for stream, rows in new:
                counts[stream] = counts.get(stream, 0) + rows
        reach("before-settle")
        groups = [f.group for f in flights]
        if self._task is not None and acked.keys:
            keys = tuple(CoveredKeys(self._task, scope, upto) for scope, upto in acked.keys)
            groups[-1] = msgspec.structs.replace(groups[-1], keys=(*groups[-1].keys, *keys))
        groups = self._store.settle(self._lease, groups, self._session.merge)
        reach("after-settle")
        for number in acked.segments:
            self._flying.pop(number, None)
        self._sent.remove(item for f in flights for item in _consumed(f.group))
        for flight, group in zip(flights, groups, strict=True):
            for load in group.loads:
                # The rows written are counted by fed().
                less = self._less(load)
                self._observer.loaded(less, LoadResult(0))
                if rejected := self._taken(self._rejected, less):
                    self._observer.rejected_at_destination([(load.stream, rejected)])
            self._observer.states(group.states)
            self._published |= flight.publishes

    def _epochs(self) -> list[int]:
        """Returns the epochs of the rows that are under way."""
        return sorted({flight.group.epoch for flight in self._flying.values()})

    def _less(self, load: Load) -> Load:
        """Returns the load. Its rows that the destination left out count as filtered: they were not
        committed."""
        rows = self._taken(self._filtered, load)
        return msgspec.structs.replace(load, filtered=load.filtered + rows) if rows else load

    @staticmethod
    def _taken(counts: dict[StreamId, int], load: Load) -> int:
        """Returns how many of the counted rows belong to a load, and subtracts them from
        ``counts``. An ack also reports rows that it does not cover, of its own stream or
        another."""
        rows = min(counts.get(load.stream, 0), load.covered)
        if rows:
            counts[load.stream] -= rows
        return rows

    def _over(self, result: PushResult) -> None:
        """Handles the end of a conversation: what was ordered and is not settled was not acked."""
        self._filtered, self._rejected = {}, {}  # the rest is of loads that were not settled
        self._observer.fed(result)
        if self._task is not None:
            self._store.end_keys(self._lease, (), [self._task])
        given = set(result.unacked)
        for number, flight in self._flying.items():
            if result.end is not PushEnd.lost and number not in given:
                self._sent.remove(_consumed(flight.group))
        if result.retry is None or not self._flying:
            # else the next attempt rejects the same rows again
            self._session.rejects.keep_files(result.rejects, self._epochs())
        if self._goes_on_without_damaged(result):
            return
        if result.retry is not None:
            self._try_again(result, result.retry)
            return
        left, self._flying, self._conversation = self._flying, {}, None
        errors = [PenstockError.from_dict(e) for e in result.errors]
        if result.end is PushEnd.finished and not self._ended:
            errors.append(_ended_early())
        elif result.end is PushEnd.finished and left and not errors and not result.halted:
            errors.append(_unacked(left.values()))
        for _, message in result.halted:
            self._observer.note(f"{message}; the next run sends the rest again")
        for flight in left.values() if result.halted else ():
            if flight.group.loads or flight.group.states:  # else there was nothing to take
                self._failures.halt(flight.group.streams, shared=_is_shared(flight.segment))
        self._failures.errors += errors
        self._dead |= bool(errors) or result.end is not PushEnd.finished

    def _goes_on_without_damaged(self, result: PushResult) -> bool:
        """Blocks the streams with damaged parts that the feeder found, and their shared state, and
        begins the others again. Returns False where something else ended the conversation."""
        flights, failures = self._flying.values(), self._failures
        streams = {str(s): s for flight in flights for s in flight.group.streams}
        errors = [PenstockError.from_dict(e) for e in result.errors]
        if not errors or any(e.code != "log.corrupt" or e.stream not in streams for e in errors):
            return False
        for error in errors:
            stream = streams[str(error.stream)]
            shared = any(_is_shared(f.segment) for f in flights if stream in f.group.streams)
            failures.block(stream, error, shared=shared)
            self._observer.load_failed(stream, error)
        self._flying = {
            number: flight
            for number, flight in self._flying.items()
            if not flight.group.streams & failures.blocked.keys()
            and not (failures.shared_blocked and _is_shared(flight.segment))
        }
        self._conversation = None
        if self._flying:
            self._begin_later(result, 0.0)
        return True

    def _try_again(self, result: PushResult, seconds: float) -> None:
        self._conversation = None
        self._attempt += 1
        for error in result.errors:
            self._observer.note(f"the destination is tried again after: {error['message']}")
        self._begin_later(result, seconds)

    def _begin_later(self, result: PushResult, seconds: float) -> None:
        self._again_at = time.monotonic() + seconds
        given = set(result.unacked)
        for number, flight in self._flying.items():
            for load in flight.group.loads if number in given else ():
                self._observer.sent_again(load.stream, sum(p.rows for p in load.parts))

    # -- its end

    def flush(self, meanwhile: LaneWatcher) -> None:
        self._end_input()
        self._while_it(
            meanwhile, lambda: self._conversation is not None or self._will_begin_again()
        )

    def _will_begin_again(self) -> bool:
        """Whether another attempt follows: not in a cancelled run, even while a lane is still
        stopping."""
        return self._again_at is not None and not self._feeder.cancelled()

    def _while_it(self, meanwhile: LaneWatcher, waits: Callable[[], bool]) -> None:
        try:
            while waits():
                meanwhile.pause()
        except Cancelled:
            self.stop()
            raise

    def _end_input(self) -> None:
        if self._ended or (self._conversation is None and self._again_at is None):
            return
        self._ended = True
        if self._conversation is not None:
            self._conversation.order(FeedOrder(end=True))

    def stop(self) -> None:
        self._again_at = None
        if self._conversation is not None:
            self._conversation.cancel()
        until = time.monotonic() + STOP_SECONDS
        while self._conversation is not None and time.monotonic() < until:
            self.poll()
            time.sleep(0.1)

    def source_done(self, streams: Iterable[StreamId]) -> None:
        new = [s for s in streams if s not in self._done]
        if self._again_at is not None:
            self._done.update(new)  # sent when it is begun again
        elif self._conversation is not None and not self._ended and new:
            self._done.update(new)
            self._conversation.order(FeedOrder(done=tuple(new)))

    def under_way(self) -> set[ConsumedSlice]:
        return {item for flight in self._flying.values() for item in _consumed(flight.group)}

    def published(self) -> set[StreamId]:
        found, self._published = self._published, set()
        return found

    def dead(self) -> bool:
        return self._dead


def how_it_joins(load: LoadIntent) -> JoinsBy:
    return load.disposition.mode, load.disposition.primary_key


def _by_key(groups: Sequence[GroupIntent]) -> Iterator[list[GroupIntent]]:
    """Yields the groups in order, split where the mode or the primary key of a stream changes: a
    destination gets these when its conversation begins."""
    part: list[GroupIntent] = []
    known: dict[StreamId, JoinsBy] = {}
    for group in groups:
        ways = {load.stream: how_it_joins(load) for load in group.loads}
        if any(known.get(stream, way) != way for stream, way in ways.items()):
            yield part
            part, known = [], {}
        part.append(group)
        known |= ways
    if part:
        yield part


def _is_shared(segment: Segment) -> bool:
    return segment.scope is None or segment.scope.stream is None


def _not_anew(load: LoadIntent) -> LoadIntent:
    disposition = msgspec.structs.replace(load.disposition, anew=False)
    return msgspec.structs.replace(load, disposition=disposition)


def _consumed(group: GroupIntent) -> list[ConsumedSlice]:
    return [ConsumedSlice(segment, stream) for segment, stream in group.consumes]


def _scope(group: GroupIntent, pending: Pending) -> StateScope:
    """Returns the scope of a group: that of its state, else that of the later state which covers
    it. A version's rows are settled in their order among the stream's others, so that they never
    come after them."""
    if group.states:
        return group.states[-1].scope
    shares = any(s == SHARED_STATE for _, s in group.consumes)
    if len(group.streams) != 1 or shares or group.streams <= pending.amid_shared:
        return StateScope(StateType.global_)
    (stream,) = group.streams
    return StateScope(StateType.stream, stream)


def _slice(load: LoadIntent, *, complete: bool) -> StreamSlice:
    return StreamSlice(
        stream=load.stream,
        disposition=load.disposition,
        schema_version=load.schema_version,
        generation=load.generation,
        fills_generation=load.replaces,
        parts=load.parts,
        read=load.read,
        rejected=load.rejected,
        filtered=load.filtered,
        complete=complete,
    )


def _ended_early() -> PenstockError:
    return DestinationError(
        "the destination ended with exit code 0 before the end of its input",
        code="destination.ended_early",
        hint="what it acked is kept; run again to go on",
    )


def _unacked(left: Iterable[_Flight]) -> PenstockError:
    rows = sum(p.rows for f in left for load in f.group.loads for p in load.parts)
    return DestinationError(
        f"the destination ended without an error and did not return the states of {rows} rows: "
        "they count as not written, and the saved state does not move",
        code="destination.no_ack",
        hint="`acks: at_end` in the pipeline file takes exit code 0 as the ack, for a destination "
        "that never gives states back",
    )

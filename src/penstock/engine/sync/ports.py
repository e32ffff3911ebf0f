"""Defines the contracts of a sync's collaborators: the runner of lanes, the planner of streams, the
discovery during the read, the clock.

Each has an in-memory twin in the tests. Neighbours: ``engine.sync.sync`` is written against these;
``engine.deliver.delivery`` has the contract of delivery, ``engine.specs.observer`` that of
observers.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.engine.specs.lane import LaneQuestion, LaneResult
from penstock.engine.specs.plan import ContinuedStream, LaneStart, PlannedStream
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId


class LaneHandle(Protocol):
    """A lane that runs."""

    def poll(self) -> LaneResult | None:
        """Returns the lane's result; None while it runs."""
        ...

    def ask(self) -> LaneQuestion | None:
        """Returns the lane's question that is not answered yet; None: there is none. Stores a
        configuration that the connector changed (CONTROL) first, as the last :meth:`poll` does."""
        ...

    def answer(self, ask: LaneQuestion, answer: ContinuedStream | PenstockError | None) -> None:
        """Answers a question: how the stream continues, why it cannot, or (None) that it is not
        selected."""
        ...

    def cancel(self) -> None:
        """Requests the lane to stop."""
        ...


class LaneRunner(Protocol):
    """Starts lanes."""

    def start(self, start: LaneStart) -> LaneHandle:
        """Starts an epoch of a lane."""
        ...


class StreamPlanner(Protocol):
    """Plans streams and versions that a source sends only while it is read."""

    def version(self, stream: StreamId, version: int, *, goes_on: bool) -> tuple[int, bool]:
        """Returns the generation that a version of an incremental stream fills, and whether its
        rows wait until it is complete. They do not wait where rows of it are visible already, or
        where there never was another version. ``goes_on``: the source was given a state that refers
        to this version; if another version was seen since (an older state was imported), its rows
        join the table."""
        ...

    def pass_over(self, stream: StreamId) -> None:
        """Saves in the store that the source sent rows of a stream that is not selected: when it is
        selected later, its state must not cover those rows."""
        ...

    def plan(self, ask: LaneQuestion, lane: int, *, filling: bool) -> PlannedStream | None:
        """Plans a stream with the schema that its source has just sent, or with what its rows have
        shown about their columns (``LaneQuestion.required``, ``frame_types``); None: it is not
        selected. Names and schema version are in the store on return. ``filling``: its generation
        has rows under the earlier schema, which must fit the new one. Raises ``ConfigError``,
        ``SchemaError``."""
        ...


class Discovery(Protocol):
    """The discovery of the source's streams in this run. ``given``: what the plan's catalogue gives
    to the source. ``beside``: no discovery of this run has confirmed this yet; ``first``: lanes
    wait for the confirmation, else epochs begin unconfirmed."""

    given: str
    beside: bool
    first: bool

    def poll(self, *, reading: bool) -> str | None:
        """Returns what a catalogue discovered in this run gives to the source; None: the discovery
        is under way. ``reading``: a lane reads; a discovery that failed during a read is tried once
        more after it. Raises ``PenstockError`` where it failed for good."""
        ...

    def read_failed(self) -> None:
        """Saves that a read failed during a discovery: later runs discover first."""
        ...


class DiscoveryDone:
    """Implements :class:`Discovery` where the plan's catalogue comes from a discovery of this run,
    or where none is needed: the user's file, a source without discovery."""

    beside = first = False

    def __init__(self, given: str = "") -> None:
        self.given = given

    def poll(self, *, reading: bool) -> str | None:
        del reading
        return self.given

    def read_failed(self) -> None:
        return None


class RetriedRecords(Protocol):
    """Rejects that a user retries, which the lane reads in place of the source."""

    def choose(self, streams: Sequence[PlannedStream]) -> set[StreamId]:
        """Decides which are retried, once what earlier runs sealed is loaded; returns the streams
        that have some."""
        ...


class Time(Protocol):
    """The clock and the lease. ``check`` raises ``LeaseLost`` or ``Cancelled``."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def check(self) -> None: ...

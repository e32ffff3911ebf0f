"""What a sync is made of: its plan, who runs its lanes, who plans, watches and keeps its time.

Each has an in-memory twin in the tests. Neighbours: ``engine.sync`` is written against these;
``engine.delivery`` has the contract of what carries rows on.
"""

from typing import Protocol

import msgspec

from penstock.engine.delivery import DeliveryObserver
from penstock.engine.epochs import LaneStart, SyncStream
from penstock.engine.job import LaneResult
from penstock.engine.mailbox import Ask, NewConfig
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId


class SyncPlan(msgspec.Struct, frozen=True, kw_only=True):
    """``load_bytes``, ``load_seconds``: what must be pending before a load is made while sources
    still read, if one of Spark's ``slots`` (None: unknown) is free. ``max_epochs``: how often a
    lane that was lost with its worker is begun again. ``resent``: whoever feeds the source sends
    again what was not acknowledged (``engine.serve``): what an earlier run had only sealed is given
    up, no state goes ahead of a generation that is not whole, and the source's end makes no version
    whole. ``open``: the source shows its streams only while it is read; lane 0 takes whatever
    comes. ``keyed``: connectors keep keys of their own in the store."""

    pipeline: str
    streams: tuple[SyncStream, ...]
    open: bool = False
    keyed: bool = False
    resent: bool = False
    lanes: int = 1
    max_epochs: int = 3
    slots: int | None = None
    load_bytes: int = 512 << 20
    load_seconds: float = 300.0
    poll_seconds: float = 0.2
    scan_seconds: float = 2.0


class LaneHandle(Protocol):
    def poll(self) -> LaneResult | None:
        """None while it runs."""
        ...

    def new_config(self) -> NewConfig | None:
        """A configuration that the connector changed and that was not given yet (CONTROL)."""
        ...

    def ask(self) -> Ask | None:
        """What the lane waits to be told and was not answered yet."""
        ...

    def answer(self, ask: Ask, answer: "Planned | PenstockError | None") -> None: ...

    def cancel(self) -> None: ...


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it goes on being read in an epoch, from here on."""

    stream: SyncStream
    generation: int
    version: int | None = None
    fills: bool = False  # the version is not visible yet


class LaneRunner(Protocol):
    def start(self, start: LaneStart) -> LaneHandle: ...


class StreamPlanner(Protocol):
    def version(self, stream: StreamId, version: int) -> tuple[int, bool]:
        """The generation that a version of an incremental stream fills, and whether it does: not
        where its rows are visible already, or no other version ever was."""
        ...

    def plan(self, ask: Ask, lane: int, *, filling: bool) -> SyncStream | None:
        """A stream with the schema that its source has just told, None where nobody wants it;
        names and schema version are in the store when it returns. ``filling``: its generation has
        rows under the schema before, which must fit the new one. Raises ``ConfigError``,
        ``SchemaError``."""
        ...


class Observer(DeliveryObserver, Protocol):
    """Who is told; decides nothing."""

    def lane_started(self, start: LaneStart) -> None: ...

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None: ...

    def stream_planned(self, stream: StreamId) -> None:
        """The source showed it while it was read."""
        ...


class Time(Protocol):
    """The clock and the lease's keeper. ``check`` raises ``LeaseLost`` or ``Cancelled``."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def check(self) -> None: ...


class Outcome(msgspec.Struct, kw_only=True):
    """``complete``: streams that the source finished and that are committed whole."""

    complete: set[StreamId]
    failed: dict[StreamId, PenstockError]
    errors: list[PenstockError]
    cancelled: bool = False

"""Says what a sync needs of others: who runs its lanes, who plans streams, who keeps its time.

Each has an in-memory twin in the tests. Neighbours: ``engine.sync.sync`` is written against these;
``engine.deliver.delivery`` has the contract of what carries rows on, ``engine.specs.observer`` that
of who watches.
"""

from typing import Protocol

from penstock.engine.specs.lane import Ask, LaneResult
from penstock.engine.specs.plan import ContinuedStream, LaneStart, PlannedStream
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId


class LaneHandle(Protocol):
    def poll(self) -> LaneResult | None:
        """None while it runs."""
        ...

    def ask(self) -> Ask | None:
        """What the lane waits to be told and was not answered yet. Stores a configuration that the
        connector changed (CONTROL) first, as the last :meth:`poll` does."""
        ...

    def answer(self, ask: Ask, answer: ContinuedStream | PenstockError | None) -> None: ...

    def cancel(self) -> None: ...


class LaneRunner(Protocol):
    def start(self, start: LaneStart) -> LaneHandle: ...


class StreamPlanner(Protocol):
    def version(self, stream: StreamId, version: int, *, goes_on: bool) -> tuple[int, bool]:
        """The generation that a version of an incremental stream fills, and whether it does: not
        where its rows are visible already, or no other version ever was. ``goes_on``: the source
        was given a state that goes on with this version. If another was seen since (an older state
        was imported), its rows join the table.
        """
        ...

    def pass_over(self, stream: StreamId) -> None:
        """Remember that the source sent rows of a stream which were not taken: its state must not
        speak for them when the stream is wanted. In the store when it returns."""
        ...

    def plan(self, ask: Ask, lane: int, *, filling: bool) -> PlannedStream | None:
        """A stream with the schema that its source has just told, or with the columns that its
        rows have shown to be never null (``Ask.required``); None where nobody wants it;
        names and schema version are in the store when it returns. ``filling``: its generation has
        rows under the schema before, which must fit the new one. Raises ``ConfigError``,
        ``SchemaError``."""
        ...


class Time(Protocol):
    """The clock and the lease's keeper. ``check`` raises ``LeaseLost`` or ``Cancelled``."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def check(self) -> None: ...

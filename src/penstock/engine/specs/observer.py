"""Defines the observers of progress during a run: a run calls :class:`RunObserver`, a sync calls
:class:`SyncObserver`.

Not here: the report (``model.report``), the run's log file. Neighbours: ``engine.run`` and
``engine.reporting.accounting`` call a ``RunObserver``, which ``terminal.progress`` implements;
``engine.sync`` and ``engine.deliver`` call a ``SyncObserver``, which ``engine.run.monitor``
implements.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.errors import PenstockError

if TYPE_CHECKING:  # code that only shows a run loads no PyArrow
    from penstock.engine.specs.feeder import PushResult
    from penstock.engine.specs.lane import LaneResult
    from penstock.engine.specs.plan import LaneStart, PlannedStream
    from penstock.model.catalog import StreamId
    from penstock.model.segments import Load, Segment
    from penstock.model.state import StoredState
    from penstock.tables.contract import LoadResult


class RunObserver(Protocol):
    """Shows a run's progress. Called from any thread of the driver. Must never raise and never
    block for long."""

    def phase(self, name: str, detail: str) -> None:
        """Shows that a phase began or ended: ``install``, ``start``, ``extract``, ``load``,
        ``loaded``."""
        ...

    def stream(
        self,
        stream: str,
        rows: int,
        bytes: int,
        states: int,
        rejected: int,
        estimate: int | None,
    ) -> None:
        """Shows the totals of one stream so far; ``estimate``: rows that the source expects to send
        in all."""
        ...

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        """Shows how much the source expects to send of a stream, or (None) of all streams
        together."""
        ...

    def log(self, level: str, origin: str, message: str) -> None:
        """Shows a log line of a connector or of Penstock, secrets masked. ``level``: FATAL ERROR
        WARN INFO DEBUG TRACE."""
        ...

    def note(self, text: str) -> None:
        """Shows a note that is also in the report."""
        ...


class SyncObserver(Protocol):
    """Counts every step of a sync, on the driver's thread; decides nothing."""

    def lane_started(self, start: "LaneStart") -> None:
        """Called when an epoch of a lane begins."""
        ...

    def lane_ended(self, start: "LaneStart", result: "LaneResult") -> None:
        """Called when an epoch of a lane ended."""
        ...

    def stream_planned(self, stream: "PlannedStream", *, new: bool) -> None:
        """Called when the source sent a stream that is not in the plan (``new``) or a changed
        schema, and the stream was planned again while it is read."""
        ...

    def segments(self, segments: "Sequence[Segment]") -> None:
        """Called when these segments are about to be committed."""
        ...

    def loaded(self, load: "Load", result: "LoadResult") -> None:
        """Called when a load is committed, or its group acked and settled."""
        ...

    def load_seconds(self, seconds: float) -> None:
        """Called with the seconds that commits of loads into tables took."""
        ...

    def states(self, states: "Sequence[StoredState]") -> None:
        """Called when these states were saved: all their loads are committed."""
        ...

    def load_failed(self, stream: "StreamId", error: PenstockError) -> None:
        """Called when the stream's delivery failed; nothing more of it is delivered in this run."""
        ...

    def refused(self, stream: "StreamId", rejected: int) -> None:
        """Called when the stream is no longer delivered, as too many of its records were rejected.
        ``rejected``: those that are in none of its loads."""
        ...

    def fed(self, result: "PushResult") -> None:
        """Called when a push task ended."""
        ...

    def rejected_at_destination(self, rejected: "Iterable[tuple[StreamId, int]]") -> None:
        """Called with how many rows the destination rejected, per stream, among those that it has
        acked."""
        ...

    def sent_again(self, stream: "StreamId", rows: int) -> None:
        """Called when a destination connector is fed rows again that an earlier run fed and that
        were not acked."""
        ...

    def note(self, text: str) -> None:
        """Adds a note to the report."""
        ...


def counted(number: int, singular: str) -> str:
    """Formats a number with its noun: ``1 row``, ``1,204 rows``."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


class NullObserver:
    """Implements :class:`RunObserver` and shows nothing."""

    def phase(self, name: str, detail: str) -> None:
        del name, detail

    def stream(
        self,
        stream: str,
        rows: int,
        bytes: int,
        states: int,
        rejected: int,
        estimate: int | None,
    ) -> None:
        del stream, rows, bytes, states, rejected, estimate

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        del stream, rows, bytes

    def log(self, level: str, origin: str, message: str) -> None:
        del level, origin, message

    def note(self, text: str) -> None:
        del text

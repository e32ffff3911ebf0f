"""What a run tells whoever watches it, while it goes on (:class:`RunObserver`), and what a sync
tells the run around it (:class:`SyncObserver`).

Not the report (``model.report``), which is what remains; not the run's log file. Neighbours:
``engine.run`` and ``engine.accounting`` tell and ``cli.progress`` shows; ``engine.run_monitor``
hears what ``engine.sync`` and ``engine.deliver`` say.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.engine.specs.feeder import PushResult
from penstock.engine.specs.lane import LaneResult
from penstock.engine.specs.plan import LaneStart, PlannedStream
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.model.segments import Load, Segment
from penstock.model.state import SavedState
from penstock.tables.contract import LoadResult


class RunObserver(Protocol):
    """Called from any thread of the driver. An observer never raises and never blocks for long."""

    def phase(self, name: str, detail: str) -> None:
        """Something began or was reached: ``install``, ``start``, ``extract``, ``load``,
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
        """Totals of one stream so far; ``estimate``: rows that the source expects in all."""
        ...

    def expected(self, stream: str | None, rows: int | None, bytes: int | None) -> None:
        """How much the source expects to send of a stream, or (None) of all together."""
        ...

    def log(self, level: str, origin: str, message: str) -> None:
        """A line of a connector or of ours, secrets masked. ``level``: FATAL ERROR WARN INFO DEBUG
        TRACE."""
        ...

    def note(self, text: str) -> None:
        """Something the user should know; it is in the report as well."""
        ...


class SyncObserver(Protocol):
    """Hears of every step of a sync, on the driver's thread; decides nothing."""

    def lane_started(self, start: LaneStart) -> None: ...

    def lane_ended(self, start: LaneStart, result: LaneResult) -> None: ...

    def stream_planned(self, stream: PlannedStream, *, new: bool) -> None:
        """The source showed it (``new``), or showed that it goes on otherwise, while it was
        read."""
        ...

    def segments(self, segments: Sequence[Segment]) -> None:
        """These are about to be committed."""
        ...

    def loaded(self, load: Load, result: LoadResult) -> None: ...

    def load_seconds(self, seconds: float) -> None:
        """So long tables took to commit."""
        ...

    def states(self, states: Sequence[SavedState]) -> None:
        """States whose loads are all committed."""
        ...

    def load_failed(self, stream: StreamId, error: PenstockError) -> None: ...

    def refused(self, stream: StreamId, rejected: int) -> None:
        """Nothing more of the stream is delivered, as too many records were rejected: so many
        beside those of its loads."""
        ...

    def fed(self, result: PushResult) -> None:
        """A conversation with a destination connector is over."""
        ...

    def put_aside(self, rejected: Iterable[tuple[StreamId, int]]) -> None:
        """Of the rows that are acked next, the destination kept these as rejects."""
        ...

    def sent_again(self, stream: StreamId, rows: int) -> None:
        """A destination connector is given so many rows that it may have."""
        ...

    def note(self, text: str) -> None: ...


def counted(number: int, singular: str) -> str:
    """``1 row``, ``1,204 rows``."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


class NullObserver:
    """Nobody watches."""

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

"""What a run tells whoever watches it, while it goes on.

Not the report (``model.report``), which is what remains; not the run's log file. Neighbours:
``engine.run`` and ``engine.accounting`` tell; ``cli.progress`` shows.
"""

from typing import Protocol


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

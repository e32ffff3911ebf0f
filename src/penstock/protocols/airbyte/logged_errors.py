"""Compares the errors that a source logs with the ends of streams that it reports.

A LOG of level ERROR or FATAL does not fail the read by itself (protocol, AirbyteLogMessage). But
sources log an error, skip what they could not read, and go on. Then exit code 0 proves nothing for
a stream without a reported end (L6), and a COMPLETE after an error may be wrong (the declarative
CDK sends one after an answer that is not JSON). Not here: lines that are not messages; TRACE ERROR,
which fails the read. Neighbours: ``record_reader`` passes logs and statuses; ``spec`` declares
``complete_on``.
"""

from collections.abc import Iterable, Iterator

from penstock.model.catalog import StreamId
from penstock.model.events import DoubtfulEnd, Status
from penstock.protocols.airbyte.enums import LogLevel
from penstock.protocols.doubts import after_errors, counted_errors

_ERRORS = (LogLevel.error, LogLevel.fatal)
_HINT = (
    "their tables keep what they had; the log has the errors. If the source logs such errors though"
    " it has read everything, set `complete_on: exit` in the pipeline's source section"
)


class LoggedErrors:
    """Tracks the errors of one read. ``trusts_exit``: exit code 0 completes a stream despite logged
    errors (``complete_on: exit``)."""

    def __init__(self, configured: Iterable[StreamId], *, trusts_exit: bool) -> None:
        self._left = dict.fromkeys(configured)  # streams without a reported end
        self._trusts_exit = trusts_exit
        self._begun: set[StreamId] = set()
        self._count, self._first = 0, ""
        # the number of errors, and the first one, while a stream was read, or no stream was
        self._of: dict[StreamId, tuple[int, str]] = {}
        self._complete: dict[StreamId, tuple[int, str]] = {}

    def log(self, level: str, message: str) -> None:
        """Takes a LOG message of the source."""
        if level not in _ERRORS:
            return
        self._count, self._first = self._count + 1, self._first or message
        begun = [s for s in self._left if s in self._begun]
        for stream in begun or self._left:
            count, first = self._of.get(stream, (0, message))
            self._of[stream] = count + 1, first

    def status(self, stream: StreamId, status: Status) -> None:
        """Takes a status of a configured stream."""
        if status in (Status.started, Status.running):
            self._begun.add(stream)
            return
        self._left.pop(stream, None)
        if status is Status.complete and stream in self._of:
            self._complete[stream] = self._of[stream]

    def doubts(self, exit_code: int | None) -> Iterator[DoubtfulEnd]:
        """Yields the doubts at the source's end."""
        groups: dict[tuple[int, str], list[StreamId]] = {}
        for stream, errors in self._complete.items():
            groups.setdefault(errors, []).append(stream)
        for (count, first), streams in groups.items():
            yield after_errors(streams, count, first)
        if exit_code != 0 or not self._count or not self._left:
            return
        errors = counted_errors(self._count, self._first)
        if self._trusts_exit:
            reason = f"{errors}; exit code 0 completes them, by `complete_on: exit`"
        else:
            reason = f"no status confirms that they were read completely, and {errors}"
        yield DoubtfulEnd(tuple(self._left), reason, complete=self._trusts_exit, hint=_HINT)

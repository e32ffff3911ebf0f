"""Describes an error for the user: what happened, where, what to do next, where the trace is.

Errors of the tree are shown as they are. Every other exception is a defect of Penstock: its trace
goes to a file of mode 0600 in the home's ``errors`` folder and is shown only at ``-vv``.
Neighbours: ``output`` prints; ``penstock.errors`` is the tree.
"""

import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import Cancelled, Defect, PenstockError, not_ours
from penstock.files import write_new
from penstock.terminal.traces import without_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN_OF_CONNECTOR = ("failure_type", "internal_message")
_TRACES = ("stack_trace",)
_LABEL = 9
_CONTINUED = "| "  # before the further lines of a foreign text


class TraceFolder(Protocol):
    """The parts of ``output.Output`` that a :class:`DescribedError` needs."""

    errors_dir: Path | None

    def safe(self, text: str) -> str: ...


@dataclass(slots=True)
class DescribedError:
    """A described error. ``error``: the object of the report and of ``--json``. ``trace``: its
    text, for ``-vv``; ``trace_file``: where it was written."""

    error: dict[str, Any]
    exit_code: int
    trace: str | None = None
    trace_file: str | None = None

    @staticmethod
    def of(error: BaseException, output: TraceFolder) -> "DescribedError":
        """Describes an exception; the trace of a defect is written to a file."""
        described = _as_penstock(error)
        fault = DescribedError(described.as_report(), described.exit_code)
        fault.trace = output.safe("".join(traceback.format_exception(error)))
        if described.exit_code == Defect.exit_code:
            fault.trace_file = _keep(fault.trace, output.errors_dir)
        return fault

    @property
    def problems(self) -> list[str]:
        """Returns the problems that were found together."""
        return [str(p) for p in self.error.get("problems") or ()]

    def as_dict(self, log: str | None) -> dict[str, Any]:
        """Returns the error as the object of ``--json``."""
        extra = {"trace": self.trace_file, "log": log}
        shown = {"exit_code": self.exit_code} | self.error
        return shown | {name: value for name, value in extra.items() if value is not None}

    def lines(
        self, verbosity: int, log: str | None, safe: Callable[[str], str]
    ) -> "Iterator[RenderableType]":
        """Yields the text for stderr, its first word in red on a terminal. ``safe``: makes foreign
        text printable."""
        from rich.text import Text

        message = str(self.error["message"])
        shown = safe(message if verbosity >= 2 else without_trace(message))
        first, *more = shown.strip("\n").split("\n")
        yield Text.assemble(("Error: ", "bold red"), first)
        yield from (f"  {_CONTINUED}{line}" for line in more)
        # one problem is the same as the message
        for problem in self.problems if self.problems != [self.error["message"]] else []:
            yield from _lines("  - ", safe(problem))
        for label, value in self._details(verbosity, log):
            yield from _lines(f"  {label:<{_LABEL}} ", safe(value))
        if verbosity >= 2 and self.trace:
            yield from (f"  {_CONTINUED}{line}" for line in self.trace.rstrip().split("\n"))

    def _details(self, verbosity: int, log: str | None) -> Iterator[tuple[str, str]]:
        message = str(self.error["message"])
        where = self.error.get("where")
        if where and str(where) not in message:
            yield "where", str(where)
        if self.error.get("stream"):
            yield "stream", str(self.error["stream"])
        connector = self.error.get("connector") or {}
        said = str(connector.get("message") or "")
        if said and said not in message:
            yield "message", f'"{said if verbosity >= 2 else without_trace(said)}"'
        for name, value in connector.items():
            least = 0 if name in _SHOWN_OF_CONNECTOR else 2 if name in _TRACES else 1
            wanted = verbosity >= least
            if wanted and name != "message" and value is not None and str(value) not in message:
                yield name, str(value) if verbosity >= 2 else without_trace(str(value))
        if self.error.get("hint"):
            yield "try", str(self.error["hint"])
        if self.trace_file:
            yield "trace", self.trace_file
        if log:
            yield "log", log


def _as_penstock(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Cancelled("stopped by Ctrl-C", hint="run it again; nothing was half done")
    if (fault := not_ours(error)) is not None:
        return fault
    kind = type(error).__name__
    return Defect(
        f"Penstock failed unexpectedly: {kind}: {error}".rstrip(": "),
        code=f"defect.{kind}",
        hint="this is a bug in Penstock: please report it with the trace",
    )


def _lines(label: str, text: str) -> Iterator[str]:
    """Yields the lines of a text, the first after ``label``, the others after a mark, so that none
    looks like a line of ours."""
    first, *more = text.strip("\n").split("\n")
    yield f"{label}{first}"
    yield from (f"{' ' * len(label)}{_CONTINUED}{line}" for line in more)


def _keep(trace: str, folder: Path | None) -> str | None:
    """Writes a trace to a file of mode 0600 and returns its path; in the system's temporary folder
    where the home cannot be written; None: neither works."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
    for place in (folder, Path(tempfile.gettempdir())):
        if place is None:
            continue
        path = place / f"{stamp}.txt"
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_new(path, trace.encode("utf-8", "backslashreplace"))
        except OSError:
            continue
        return str(path)
    return None

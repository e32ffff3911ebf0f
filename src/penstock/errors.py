"""The one error tree: what happened, where, what to do next, and the exit code that follows.

Not here: how an error is shown (``terminal.output``) or stored (``model.report``). Every layer
raises from this tree; nothing else reaches a user. Exit codes are those of the command-line
contract.

    PenstockError
      ConfigError          2   a pipeline file, an option, a connector's config; usage
      SchemaError          3   a schema that cannot be read, a schema change that is refused
      ConnectorError       4   a connector could not be installed or started; its role is not known
      SourceError          4   the source connector failed, or could not be started or installed
      DestinationError     5   the table or the destination connector refused
      StateError           6   the state store or a state
        Locked             6   another run holds the pipeline
        LeaseLost          6   this run held it and lost it
      LogError             6   the write-ahead log: corrupt, full, not writable
      Cancelled            7   Ctrl-C, SIGTERM
      Defect              70   a fault of ours
"""

import errno
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

from penstock.deep_data import is_nested_too_deeply
from penstock.short_texts import MOST_FOREIGN, bounded, bounded_data

_MOST_PROBLEMS, _MOST_OF_A_PROBLEM = 20, 5_000  # in the text of an error

Role = Literal["source", "destination", "transform"]
"""The role of a connector in a pipeline."""


class PenstockError(Exception):
    """Base of every error a user sees.

    ``message`` shows what happened, ``where`` the place (a file and line, a stream, a path in a
    config), ``hint`` what to do next. ``code`` is stable and dotted (``source.exited``).
    ``connector`` holds every field of a connector's own error. ``fields``: those in
    :meth:`as_dict`; a class with more fields adds their names. ``report``: of the run that it ended
    (``model.report.Report``), where the Python interface raises it. ``attempt``: the id of the run
    that failed before it began (``engine.run.attempts``).
    """

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "defect"
    report: Any = None
    attempt: str | None = None
    fields: ClassVar[tuple[str, ...]] = ("code", "message", "hint", "where", "stream", "connector")

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        where: str | None = None,
        stream: str | None = None,
        connector: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint
        self.where = where
        self.stream = stream
        self.connector = connector

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON data from which :meth:`from_dict` makes the same error in another process.
        ``class``: its own name, then those of its bases, for a reader that lacks the first."""
        fields = {name: getattr(self, name) for name in self.fields}
        bases = type(self).__mro__
        names = [base.__name__ for base in bases[: bases.index(PenstockError)]]
        return {"class": names, **fields, "exit_code": self.exit_code}

    def as_report(self) -> dict[str, Any]:
        """Returns the ``error`` object of a report and of ``--json``, which is a contract with
        users: it names no class, and cuts long texts (``short_texts``)."""
        report = {name: bounded_data(getattr(self, name)) for name in PenstockError.fields}
        report["connector"] = bounded_data(self.connector, MOST_FOREIGN)
        return {**report, "exit_code": self.exit_code}

    @staticmethod
    def from_dict(raw: dict[str, Any]) -> "PenstockError":
        """Returns the error of :meth:`as_dict`, as its class, or the nearest base that this process
        has loaded; without a class (:meth:`as_report`, older versions), by its exit code."""
        known = {kind.__name__: kind for kind in _below(PenstockError)}
        named = (known[name] for name in raw.get("class", ()) if name in known)
        kind = next(named, None) or _BY_EXIT_CODE.get(int(raw.get("exit_code", 70)), Defect)
        error = kind.__new__(kind)  # the constructor of a subclass may take other arguments
        fields = {name: raw.get(name) for name in PenstockError.fields}
        PenstockError.__init__(error, str(fields.pop("message") or ""), **fields)
        for name in kind.fields[len(PenstockError.fields) :]:
            setattr(error, name, raw.get(name) or [])  # further fields are lists
        return error


class ConfigError(PenstockError):
    """Configuration or usage. ``problems`` lists several faults found at once, one line each."""

    exit_code = 2
    default_code = "config.invalid"
    fields = (*PenstockError.fields, "problems")

    def __init__(self, message: str, *, problems: list[str] | None = None, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.problems = problems or []

    def __str__(self) -> str:
        """Returns the message and the problems that it does not have, one line each."""
        listed = [problem for problem in self.problems if problem != self.message]
        shown = [" ".join(bounded(p, _MOST_OF_A_PROBLEM).split()) for p in listed[:_MOST_PROBLEMS]]
        if len(listed) > len(shown):
            shown.append(f"and {len(listed) - len(shown):,} more, in .problems")
        return "\n".join([self.message, *(f"  - {line}" for line in shown)])

    def as_report(self) -> dict[str, Any]:
        problems = bounded_data(self.problems)
        return super().as_report() | ({"problems": problems} if problems else {})


class SchemaError(PenstockError):
    exit_code = 3
    default_code = "schema.invalid"


class ConnectorError(PenstockError):
    """A connector cannot be installed or started; raised by code that serves every role. Never
    leaves that code: :func:`in_role` gives it its role."""

    exit_code = 4
    default_code = "connector.failed"


class SourceError(PenstockError):
    """From a source, or from a transform."""

    exit_code = 4
    default_code = "source.failed"


class DestinationError(PenstockError):
    exit_code = 5
    default_code = "destination.failed"


class StateError(PenstockError):
    exit_code = 6
    default_code = "state.invalid"


class Locked(StateError):
    """Another run holds the pipeline's lease; the message names the holder and its start time."""

    default_code = "state.locked"


class LeaseLost(StateError):
    """This run's lease was taken over; it may not commit anything any more (L12)."""

    default_code = "state.lease_lost"


class LogError(PenstockError):
    exit_code = 6
    default_code = "log.failed"


class Cancelled(PenstockError):
    exit_code = 7
    default_code = "cancelled"


class Defect(PenstockError):
    exit_code = 70
    default_code = "defect"


def error_class(role: Role) -> type[SourceError] | type[DestinationError]:
    """Returns the class of a connector's failures in this role."""
    return DestinationError if role == "destination" else SourceError


@contextmanager
def in_role(role: Role) -> Generator[None]:
    """Converts every ``ConnectorError`` raised inside to the error of a connector in this role."""
    try:
        yield
    except ConnectorError as e:
        fields = {name: getattr(e, name) for name in PenstockError.fields}
        raise error_class(role)(fields.pop("message"), **fields) from e.__cause__


def not_ours(error: BaseException) -> PenstockError | None:
    """Returns the error of an exception that is not a fault of ours but of the machine (a full or
    read-only disk, a disk that fails, too few file descriptors), or of data that is nested more
    deeply than Python goes (``deep_data``). None: neither."""
    if isinstance(error, RecursionError) and is_nested_too_deeply(error):
        return SchemaError(
            "a schema, a state or a value is nested too deeply to be worked on",
            code="schema.too_deep",
            hint="leave the stream out, or its deep field (`columns`); a part of a schema that is "
            "given as an object without properties is kept as JSON text",
        )
    if not isinstance(error, OSError):
        return None
    file = error.filename if isinstance(error.filename, str) else None
    at = f": {file}" if file else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return LogError(
                f"the disk is full, or this user's quota{at}",
                code="disk.full",
                where=file,
                hint="free some space there (`df -h` and `df -i` show the disks), then run again: "
                "what was sealed is kept",
            )
        case errno.EROFS:
            return LogError(
                f"the disk is read-only{at}",
                code="disk.read_only",
                where=file,
                hint="mount it writable, or name a folder on another disk (PENSTOCK_HOME, "
                "`log.path`), then run again",
            )
        case errno.EIO:
            return LogError(
                f"the disk failed{at} ({error.strerror})",
                code="disk.failed",
                where=file,
                hint="see the system's log (`dmesg`); what was sealed is kept",
            )
        case errno.EMFILE | errno.ENFILE:
            return ConfigError(
                "too few file descriptors: this process may open no more files",
                code="config.open_files",
                hint="allow more (`ulimit -n 4096` in this shell), then run again",
            )
        case _:
            return None


_BY_EXIT_CODE: dict[int, type[PenstockError]] = {
    2: ConfigError,
    3: SchemaError,
    4: SourceError,
    5: DestinationError,
    6: StateError,
    7: Cancelled,
    70: Defect,
}


def _below(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    """Yields every loaded class of the tree under ``kind``."""
    for branch in kind.__subclasses__():
        yield branch
        yield from _below(branch)

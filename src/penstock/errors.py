"""The one error tree: what happened, where, what to do next, and the exit code that follows.

Not here: how an error is shown (``cli.output``) or stored (``model.report``). Every layer raises
from this tree; nothing else reaches a user. Exit codes are those of the command-line contract.

    PenstockError
      ConfigError          2   a pipeline file, an option, a connector's config; usage
      SchemaError          3   a schema that cannot be read, a schema change that is refused
      SourceError          4   the source connector failed, or could not be started or installed
      DestinationError     5   the table or the destination connector refused
      StateError           6   the state store or a state
        Locked             6   another run holds the pipeline
        LeaseLost          6   this run held it and lost it
      LogError             6   the write-ahead log: corrupt, full, not writable
      Cancelled            7   Ctrl-C, SIGTERM
      Defect              70   a fault of ours
"""

from typing import Any, ClassVar


class PenstockError(Exception):
    """Base of every error a user sees.

    ``message`` says what happened, ``where`` the place (a file and line, a stream, a path in a
    config), ``hint`` what to do next. ``code`` is stable and dotted (``source.exited``).
    ``connector`` holds every field of a connector's own error.
    """

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "defect"

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
        """The ``error`` object of a report: code, message, hint, where, stream, connector."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "where": self.where,
            "stream": self.stream,
            "connector": self.connector,
            "exit_code": self.exit_code,
        }

    @staticmethod
    def from_dict(raw: dict[str, Any]) -> "PenstockError":
        """The error that :meth:`as_dict` described, as a member of the same branch of the tree."""
        branch = _BY_EXIT_CODE.get(int(raw.get("exit_code", 70)), Defect)
        return branch(
            str(raw.get("message", "")),
            code=raw.get("code"),
            hint=raw.get("hint"),
            where=raw.get("where"),
            stream=raw.get("stream"),
            connector=raw.get("connector"),
        )


class ConfigError(PenstockError):
    """Configuration or usage. ``problems`` lists several faults found at once, one line each."""

    exit_code = 2
    default_code = "config.invalid"

    def __init__(self, message: str, *, problems: list[str] | None = None, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.problems = problems or []


class SchemaError(PenstockError):
    exit_code = 3
    default_code = "schema.invalid"


class SourceError(PenstockError):
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
    """This run's lease was taken over; nothing of it may be committed any more (L12)."""

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


_BY_EXIT_CODE: dict[int, type[PenstockError]] = {
    2: ConfigError,
    3: SchemaError,
    4: SourceError,
    5: DestinationError,
    6: StateError,
    7: Cancelled,
    70: Defect,
}

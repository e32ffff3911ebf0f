"""Builds the errors of Penstock's tree for all failures of a component, with all fields of the
component's own error.

Three kinds: what ended a session (:func:`explain`: the component's own error, a trap, a deadline),
the failure of a stream's run (:func:`error_of`), and the defects of a write that the host detects.
Guests hide the errors of host functions, so the first of those leads the message. Not here: retries
(``retry``).
"""

from typing import Any

from penstock.errors import DestinationError, PenstockError, Role, error_class
from penstock.model.catalog import StreamId
from penstock.model.events import Error
from penstock.protocols.failures import failure
from penstock.protocols.rapidbyte.guest.events import RunEnded
from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.guest.host_imports import UnraisableError
from penstock.protocols.rapidbyte.guest.retry import retry_after
from penstock.protocols.rapidbyte.guest.session import BadAnswer
from penstock.protocols.rapidbyte.wire.messages import ConnectorFault, Refusal
from penstock.protocols.rapidbyte.wire.wit_records import FaultReturned
from penstock.runtimes.wasm.contract import Trap, TrapKind
from penstock.runtimes.wasm.instance import MEMORY_SIGNS

_HINTS = {
    TrapKind.timeout: "raise limits.timeout_seconds of this connector; its manifest may set a "
    "lower bound",
    TrapKind.memory: "raise limits.max_memory of this connector; its manifest may set a lower "
    "bound",
    TrapKind.refused: "is this the right file, made for this role and for protocol version 4?",
    TrapKind.exited: "its own last lines are above",
    TrapKind.crashed: "this is a fault of the connector; its own last lines are above",
    TrapKind.host: "report this: the connector's host failed",
}
_FAULT_HINTS = {
    "NETWORK_DENIED": "a host must be allowed by the connector's manifest and, where the pipeline "
    "lists permissions.network.allowed_hosts, by that list as well",
    "INVALID_CONFIG": "compare the config with the connector's schema",
}


class Unresponsive(Exception):
    """Raised for a guest that was inactive for too long. ``code``: without the ``connector.``
    prefix; ``hint``: which key raises the timeout."""

    def __init__(self, message: str, code: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


def check_frames(lost: int) -> None:
    """Raises :class:`BadAnswer` for a run that ended well, though ``lost`` of its frames were
    refused: the guest ignored that, and their rows would be lost (L8)."""
    if lost:
        raise BadAnswer(
            f"that all is well, though {lost} of its frames were refused, and neither emitted since"
            " nor dropped"
        )


def explain(
    role: Role, error: Exception, host_fault: ConnectorFault | None = None
) -> PenstockError:
    """Converts any exception that ended a session into an error of the tree. ``host_fault``: the
    first error that a host function gave the connector. The connector's texts are not masked
    here."""
    return error if isinstance(error, PenstockError) else _explained(role, error, host_fault)


def reclassified(error: Exception, host: HostFunctions) -> Exception:
    """Turns a crash into a ``memory`` trap where the guest's last log line reports that it ran out
    of memory; any other error is returned unchanged."""
    if not isinstance(error, Trap) or error.kind is not TrapKind.crashed:
        return error
    if not any(sign in host.last_line for sign in MEMORY_SIGNS):
        return error
    message = "it ran out of memory"
    return Trap(TrapKind.memory, message, detail=error.detail, stderr=error.stderr)


def first_fault(host: HostFunctions) -> ConnectorFault | None:
    """Returns the first error that a host function gave the guest and that it did not recover
    from."""
    return host.first_fault.fault if host.first_fault is not None else None


def _explained(role: Role, error: Exception, host_fault: ConnectorFault | None) -> PenstockError:
    branch = error_class(role)
    if isinstance(error, FaultReturned):
        return _own_error(branch, role, error.fault, host_fault)
    if isinstance(error, Trap):
        return _trap_error(branch, role, error, host_fault)
    if isinstance(error, Unresponsive):
        message = f"the {role} was ended: {error}"
        if host_fault is not None:
            message += f"; before that its host answered {host_fault}"
        return branch(message, code=f"connector.{error.code}", hint=error.hint)
    if isinstance(error, BadAnswer):
        return branch(
            f"the {role} gave a forbidden answer: {error}",
            code="connector.bad_answer",
            hint="this is a fault of the connector",
        )
    return branch(
        f"the {role} failed: {error!r}",
        code="connector.failed",
        hint="report this: a bug in Penstock",
    )


def _own_error(
    branch: type[PenstockError],
    role: Role,
    fault: ConnectorFault,
    host_fault: ConnectorFault | None,
) -> PenstockError:
    leading = host_fault or fault
    message = f"the {role} failed: {leading}"
    if host_fault is not None and str(host_fault) != str(fault):
        message += f"; it then reported {fault}"
    fields: dict[str, Any] = fault.report()
    fields["host_fault"] = host_fault.report() if host_fault is not None else None
    return branch(
        message,
        code="connector.failed",
        hint=_FAULT_HINTS.get(leading.code),
        connector=fields,
    )


def _trap_error(
    branch: type[PenstockError], role: Role, trap: Trap, host_fault: ConnectorFault | None
) -> PenstockError:
    if host_fault is not None and isinstance(trap.__cause__, UnraisableError):
        fields = host_fault.report()
        return branch(
            f"the {role} was ended, because without the fast path it cannot be notified: "
            f"{host_fault}",
            code="connector.failed",
            hint=_FAULT_HINTS.get(host_fault.code),
            connector={**fields, "host_fault": fields},
        )
    ended = "cannot be run" if trap.kind is TrapKind.refused else "was ended"
    message = f"the {role} {ended}: {trap.message}"
    if host_fault is not None:
        message += f"; before that its host answered {host_fault}"
    if trap.stderr:
        message += f"\n{trap.stderr}"
    return branch(
        message,
        code=f"connector.{trap.kind.value}",
        hint=_HINTS[trap.kind],
        connector={
            "trap": trap.kind.value,
            "detail": trap.detail,
            "stderr": trap.stderr,
            "host_fault": host_fault.report() if host_fault is not None else None,
        },
    )


# -- a run of a stream


def error_of(ended: RunEnded, stream: StreamId, role: Role, attempt: int, allowed: int) -> Error:
    """Returns the ``Error`` event of a failed run, with the connector's own category if it gave
    one. ``attempt``: the failed one, from 1; ``allowed``: the maximum number of retries. Raises
    ``ValueError`` for a run that succeeded."""
    error = ended.error
    if error is None:
        raise ValueError("it ended well")
    if ended.fault is None:
        return failure(error, stream, role)
    retry = retry_after(ended, attempt, allowed)
    return Error(error.message, ended.fault.category, stream, dict(error.connector or {}), retry)


def broken_frame(role: Role, refusal: Refusal, stream: StreamId) -> Exception:
    """Returns the error for a connector's frame that cannot be decoded."""
    branch = error_class(role)
    return branch(
        f"a frame of the {role} cannot be taken: {refusal.fault.message}",
        code=f"{role}.bad_frame",
        hint="this is a fault of the connector: each frame is one whole Arrow IPC stream, its"
        " schema first",
        stream=str(stream),
    )


# -- errors of a write


def timed_out(total: float) -> Error:
    return Error(
        f"the destination was still running after {total:g} s",
        "system_error",
        code="destination.timeout",
        hint="raise timeouts.total",
    )


def stalled(stream: StreamId, bound: float) -> DestinationError:
    return DestinationError(
        f"the destination took no frame of {stream} for {bound:g} s",
        code="destination.heartbeat",
        hint="see its last output in the log, and whether the system that it writes to answers",
        stream=str(stream),
    )


def incomplete(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"stream {stream} was not fed to its end: what it replaces stays",
        code="destination.incomplete",
        hint="run again: it is sent again from its beginning",
        stream=str(stream),
    )


def split(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"rows of {stream} came after the run that replaced its rows had ended",
        code="destination.split",
        hint="run again: it is sent again from its beginning",
        stream=str(stream),
    )


def rows_too_large(stream: StreamId, refusal: Refusal) -> DestinationError:
    fault = refusal.fault
    return DestinationError(
        f"rows of {stream} do not fit into a frame: {fault.message}",
        code=f"destination.{fault.code.lower()}",
        hint="raise resources.max_batch_bytes, or leave the largest column out with `columns`",
        stream=str(stream),
        connector=fault.report(),
    )


def without_columns(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"stream {stream} has no columns: a frame cannot carry its rows",
        code="destination.no_columns",
        hint="leave the stream out, or choose `columns` that it has",
        stream=str(stream),
    )


def unannounced_stream(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"rows of stream {stream} came before the stream was declared",
        code="destination.new_stream",
        hint="run again: what it was sent so far is kept",
        stream=str(stream),
    )


def ended_early(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"the destination ended the run of {stream} well before it had taken all of its rows",
        code="destination.ended_early",
        hint="this is a fault of the connector; what it acknowledged is kept",
        stream=str(stream),
    )


def records_failed(stream: StreamId, failed: int, given: int, letters: int) -> DestinationError:
    return DestinationError(
        f"{stream}: {failed} of {given} rows failed at the destination, and it put {letters} aside",
        code="destination.rows_failed",
        hint="its log may give the reason; `on_data_error: skip` leaves such rows out and counts "
        "them",
        stream=str(stream),
    )


def rows_missing(stream: StreamId, written: int, given: int, letters: int) -> DestinationError:
    aside = f", and it put {letters} aside" if letters else ""
    return DestinationError(
        f"{stream}: the destination ended without an error and reports that it wrote {written} of "
        f"the {given} rows"
        f" that it was given{aside}",
        code="destination.miscounted",
        hint="what it had acknowledged before is kept, its log may give the reason; run again to "
        "send the"
        " rest",
        stream=str(stream),
    )


def record_rejected(stream: StreamId, reason: str) -> DestinationError:
    return DestinationError(
        f"the destination refused a record of {stream}: {reason}",
        code="destination.data",
        hint="`on_data_error: dlq` keeps such records where `penstock rejects` shows them",
        stream=str(stream),
    )

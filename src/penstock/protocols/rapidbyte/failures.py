"""Whatever ended a conversation, as an error of the one tree, with every field the connector gave.

Guests hide their host's errors, so what the host said first leads. Not here: whether to try again
(``retries``).
"""

from typing import Any

import msgspec

from penstock.errors import DestinationError, PenstockError, SourceError
from penstock.protocols.rapidbyte.binding import Untellable
from penstock.protocols.rapidbyte.lifecycle import BadAnswer
from penstock.protocols.rapidbyte.messages import Fault, Role
from penstock.protocols.rapidbyte.records import Said
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.contract import Trap, TrapKind

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


class Late(Exception):
    """It did nothing for too long. ``code``: without its role; ``hint``: what gives it more."""

    def __init__(self, message: str, code: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.hint = code, hint


def explain(
    role: Role, error: Exception, told: Fault | None = None, masker: Masker | None = None
) -> PenstockError:
    """``told``: the first error that the host gave the connector. ``masker``: what it says may
    hold its secrets."""
    if isinstance(error, PenstockError):
        return error
    explained = _explained(role, error, told)
    if masker is not None:
        explained.message = masker.mask(explained.message)
        explained.args = (explained.message,)
        explained.connector = masker.mask_data(explained.connector)
    return explained


def masked(fault: Fault, masker: Masker) -> Fault:
    """The same error without secrets."""
    details = fault.details_json
    return msgspec.structs.replace(
        fault,
        code=masker.mask(fault.code),
        message=masker.mask(fault.message),
        details_json=None if details is None else masker.mask(details),
    )


def _explained(role: Role, error: Exception, told: Fault | None) -> PenstockError:
    branch = DestinationError if role == "destination" else SourceError
    if isinstance(error, Said):
        return _said(branch, role, error.fault, told)
    if isinstance(error, Trap):
        return _trapped(branch, role, error, told)
    if isinstance(error, Late):
        message = f"the {role} was ended: {error}"
        if told is not None:
            message += f"; before that its host told it {told}"
        return branch(message, code=f"connector.{error.code}", hint=error.hint)
    if isinstance(error, BadAnswer):
        return branch(
            f"the {role} answered what it may not: {error}",
            code="connector.bad_answer",
            hint="this is a fault of the connector",
        )
    return branch(
        f"the {role} failed: {error!r}",
        code="connector.failed",
        hint="report this: a fault of ours",
    )


def _said(
    branch: type[PenstockError], role: Role, fault: Fault, told: Fault | None
) -> PenstockError:
    leading = told or fault
    message = f"the {role} failed: {leading}"
    if told is not None and str(told) != str(fault):
        message += f"; it then said {fault}"
    fields: dict[str, Any] = fault.report()
    fields["host_fault"] = told.report() if told is not None else None
    return branch(
        message,
        code="connector.failed",
        hint=_FAULT_HINTS.get(leading.code),
        connector=fields,
    )


def _trapped(
    branch: type[PenstockError], role: Role, trap: Trap, told: Fault | None
) -> PenstockError:
    if told is not None and isinstance(trap.__cause__, Untellable):
        return branch(
            f"the {role} was ended, for without the fast path it cannot be told: {told}",
            code="connector.failed",
            hint=_FAULT_HINTS.get(told.code),
            connector={**told.report(), "host_fault": told.report()},
        )
    ended = "cannot be run" if trap.kind is TrapKind.refused else "was ended"
    message = f"the {role} {ended}: {trap.message}"
    if told is not None:
        message += f"; before that its host told it {told}"
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
            "host_fault": told.report() if told is not None else None,
        },
    )

"""Converts a connector's failure event into an error of the tree, and an error into an event.

Pure. A connector's failure is an event (``model.events.Error``) while it travels with the other
events; it becomes a ``PenstockError`` where it ends something. Not here: masking
(``masked_events``), which of several failures is reported (``engine.worker.lane_failures``).
"""

from penstock.errors import PenstockError, Role, error_class
from penstock.model.catalog import StreamId
from penstock.model.events import Error

ENDED_HINTS = {
    "source": "what it had finished is kept; run again to go on from the saved state; if it ends so"
    " again, first correct what its last output names",
    "transform": "what it had finished is kept; run again to go on from the saved state",
    "destination": "see its last output in the log; what it had acknowledged is kept, run again"
    " for the rest; if it never takes these rows, `penstock state reset --sealed` gives them up,"
    " and the next run reads them again",
}
"""The default hint after a failure, by role."""


def failed(error: Error, role: Role) -> PenstockError:
    """Converts a connector's failure into an error of the tree."""
    known = error.code is not None or role == "destination"
    return error_class(role)(
        error.message,
        code=error.code or f"{role}.{error.failure_type or 'failed'}",
        hint=error.hint or (ENDED_HINTS[role] if known else None),
        where=error.where,
        stream=None if error.stream is None else str(error.stream),
        connector=error.raw or None,
    )


def failure(error: PenstockError, stream: StreamId, role: Role) -> Error:
    """Converts the error that ended a stream's conversation into an event; its code begins with the
    role."""
    code = error.code
    if code.startswith("connector."):
        code = f"{role}.{code.removeprefix('connector.')}"
    raw = error.connector or {}
    return Error(
        error.message, "system_error", stream, raw, code=code, hint=error.hint, where=error.where
    )

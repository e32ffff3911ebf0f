"""Makes an error of the tree of a connector's failure event, and the event of an error.

Pure. A connector's failure is an event (``model.events.Error``) as long as it goes the way of the
other events; it becomes a ``PenstockError`` where it ends something. Not here: masking
(``masked_events``), which failure of several is told (``engine.worker.lane_failures``).
"""

from penstock.errors import PenstockError, Role, error_class
from penstock.model.catalog import StreamId
from penstock.model.events import Error

ENDED_HINTS = {
    "source": "what it had finished is kept; run again to go on from the saved state; if it ends so"
    " again, first correct what its last output names",
    "transform": "what it had finished is kept; run again to go on from the saved state",
    "destination": "see its last output in the log; what it had acknowledged is kept, run again"
    " for the rest",
}
"""What to do after a failure of which nothing better is known, by role."""


def failed(error: Error, role: Role) -> PenstockError:
    """A connector's failure as an error of the tree."""
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
    """What ended a stream's conversation, as the event that tells it; its code begins with the
    role."""
    code = error.code
    if code.startswith("connector."):
        code = f"{role}.{code.removeprefix('connector.')}"
    raw = error.connector or {}
    return Error(
        error.message, "system_error", stream, raw, code=code, hint=error.hint, where=error.where
    )

"""How a run of a stream failed, as an event or an error of the stream, and when it is tried again.

The same for every role. Neighbours: ``failures`` (what ended it), ``retries`` (the rules),
``write_errors`` (what only a write meets).
"""

import random

from penstock.errors import DestinationError, SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import Error
from penstock.protocols.rapidbyte.messages import Refusal, Role
from penstock.protocols.rapidbyte.retries import delay, may_retry
from penstock.protocols.rapidbyte.told import Ended


def retry_after(told: Ended, attempt: int, allowed: int) -> float | None:
    """Seconds until it may be tried again; None: never."""
    if told.fault is None or attempt > allowed or not may_retry(told.fault, told.told):
        return None
    return delay(told.fault, attempt, random.random())


def error_of(told: Ended, stream: StreamId, retry: float | None, role: Role = "source") -> Error:
    """Its failure, in its own words where it gave any."""
    error = told.error
    if error is None:
        raise ValueError("it ended well")
    kind = told.fault.category if told.fault is not None else None
    raw = dict(error.connector or {})
    if told.fault is None:
        raw |= {"code": f"{role}.{error.code.removeprefix('connector.')}", "hint": error.hint}
    return Error(error.message, kind, stream, raw, retry)


def broken_frame(role: str, refusal: Refusal, stream: StreamId) -> Exception:
    branch = DestinationError if role == "destination" else SourceError
    return branch(
        f"a frame of the {role} cannot be taken: {refusal.fault.message}",
        code=f"{role}.bad_frame",
        hint="this is a fault of the connector",
        stream=str(stream),
    )

"""What is wrong with a write, and what to do about it. Neighbours: ``writer``, ``hearing``."""

from penstock.errors import DestinationError
from penstock.model.catalog import StreamId
from penstock.model.events import Error
from penstock.protocols.rapidbyte.messages import Refusal


def timed_out(total: float) -> Error:
    return Error(
        f"the destination was still running after {total:g} s",
        "system_error",
        raw={"code": "destination.timeout", "hint": "raise timeouts.total"},
    )


def stalled(stream: StreamId, bound: float) -> DestinationError:
    return DestinationError(
        f"the destination took no frame of {stream} for {bound:g} s",
        code="destination.heartbeat",
        hint="see in the log what it said last, and whether the system that it writes to answers",
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


def refused(stream: StreamId, refusal: Refusal) -> DestinationError:
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


def unknown(stream: StreamId) -> DestinationError:
    return DestinationError(
        f"rows of stream {stream} came before the stream was told of",
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


def put_aside(stream: StreamId, reason: str) -> DestinationError:
    return DestinationError(
        f"the destination refused a record of {stream}: {reason}",
        code="destination.data",
        hint="`on_data_error: dlq` keeps such records where `penstock rejects` shows them",
        stream=str(stream),
    )

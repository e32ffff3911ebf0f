"""Converts the side messages of a connector into events: LOG, TRACE, CONTROL, and unparsed output.

Every command may emit these (protocol, Interface Invariants), so that ``record_reader`` (read),
``destination_output`` (write) and ``probe`` (spec, check, discover) share this module. No such
message is fatal; a fault in an optional field does not cost the message. Not here: RECORD and
STATE.
"""

from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact, floats
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Control,
    Error,
    Estimate,
    Event,
    LogEvent,
    RateLimitWait,
    Status,
    StreamStatus,
)
from penstock.protocols.airbyte.enums import (
    ControlType,
    EstimateType,
    LogLevel,
    MessageType,
    StatusReasonType,
    TraceType,
)
from penstock.protocols.airbyte.messages import (
    AirbyteControlMessage,
    AirbyteErrorTraceMessage,
    AirbyteLogMessage,
    AirbyteTraceMessage,
    LineOther,
    StreamDescriptor,
    StreamStatusReason,
)
from penstock.protocols.stdio import wire_struct
from penstock.protocols.stdio.json_lines import FAULTS
from penstock.protocols.stdio.unparsed import UnparsedOutput

_LEVELS = frozenset(LogLevel)
_SHOWN = 4000  # bytes shown of an error without a message
_STATUSES = {s.value: s for s in Status}


class SideMessages(UnparsedOutput):
    """Converts lines into events, and counts lines without an event. A line that is not a message
    is logged (protocol, AirbyteLogMessage)."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[str, Callable[[LineOther], Iterator[Event]]] = {
            MessageType.log: self._log,
            MessageType.trace: self._trace,
            MessageType.control: self._control,
        }

    def other(self, line: LineOther, raw: bytes | None = None) -> Iterator[Event]:
        """Converts LOG, TRACE and CONTROL; any other message is counted: as ``unexpected_type:X``
        where the protocol has the type, else as ``unknown_type:X`` (specification, The Airbyte
        Protocol)."""
        handler = self._handlers.get(line.type)
        if handler is not None:
            yield from handler(line)
            return
        known = line.type in MessageType.__members__.values()
        what = f"{'unexpected' if known else 'unknown'}_type:{line.type[:64]}"
        yield from self.report(what, raw if raw is not None else line.type.encode())

    def _log(self, line: LineOther) -> Iterator[Event]:
        try:
            log = wire_struct.decode(AirbyteLogMessage, line.log)
        except wire_struct.WireError:
            yield from self.report("malformed:LOG", line.log)
            return
        level = log.level if log.level in _LEVELS else LogLevel.info.value
        yield LogEvent(level, log.message, log.stack_trace)

    def _trace(self, line: LineOther) -> Iterator[Event]:
        try:
            data = exact(line.trace)
            trace, _ = wire_struct.lenient(AirbyteTraceMessage, data)
        except (wire_struct.WireError, *FAULTS):
            yield from self.report("malformed:TRACE", line.trace)
            return
        if trace.type == TraceType.error:
            yield _error(trace.error or AirbyteErrorTraceMessage(), line.trace)
        elif trace.type == TraceType.estimate and (size := trace.estimate) is not None:
            whole = size.type == EstimateType.sync
            stream = None if whole else StreamId(size.namespace, size.name)
            yield Estimate(stream, size.row_estimate, size.byte_estimate)
        elif trace.type == TraceType.stream_status and (news := trace.stream_status) is not None:
            status = _STATUSES.get(news.status)
            if status is None:
                self.count(f"unknown_status:{news.status[:64]}")
                return
            yield StreamStatus(_known(news.stream_descriptor), status, _limited(news.reasons or []))
        elif trace.type == TraceType.analytics and trace.analytics is not None:
            self.count(f"analytics:{trace.analytics.type[:64]}")
        else:
            yield from self.report(f"unknown_trace:{trace.type[:64]}", line.trace)

    def _control(self, line: LineOther) -> Iterator[Event]:
        try:
            control, _ = wire_struct.lenient(AirbyteControlMessage, exact(line.control))
        except (wire_struct.WireError, *FAULTS):
            self.count("malformed:CONTROL")  # never logged: it may hold secrets
            return
        if control.type == ControlType.connector_config and control.connector_config is not None:
            yield Control(wire_struct.plain(control.connector_config)["config"])
        else:
            self.count(f"unknown_control:{control.type[:64]}")


def _error(error: AirbyteErrorTraceMessage, trace: msgspec.Raw) -> Error:
    """Converts a TRACE into its failure; without a message, the whole error is shown."""
    given = floats(trace).get("error")
    message = error.message or error.internal_message
    if not message:
        message = f"an error without a message: {bytes(trace)[:_SHOWN].decode(errors='replace')}"
    raw = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    return Error(message, error.failure_type, _stream(error.stream_descriptor), raw)


def _limited(reasons: Iterable[StreamStatusReason]) -> RateLimitWait | None:
    """Returns the latest quota reset of the reasons, where the stream is rate limited; else
    None."""
    limits = [r.rate_limited for r in reasons if r.type == StatusReasonType.rate_limited]
    given = [r.quota_reset for r in limits if r is not None and r.quota_reset is not None]
    resets = list(filter(isfinite, given))
    return RateLimitWait(int(max(resets)) if resets else None) if limits else None


def _known(descriptor: StreamDescriptor) -> StreamId:
    return StreamId(descriptor.namespace, descriptor.name)


def _stream(descriptor: StreamDescriptor | None) -> StreamId | None:
    return None if descriptor is None else _known(descriptor)

"""Converts a stage's events into the engine's events and answers, the same for every role.

Not here: frames, which each role converts itself; errors of a run (``errors``).
"""

from typing import Any

import msgspec

from penstock.errors import Role
from penstock.model.catalog import CheckResult, StreamId
from penstock.model.events import ConnectorMetrics, LogEvent, Reject, SkippedItems
from penstock.protocols.connection import EventSink
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    DeadLettered,
    RunEnded,
)
from penstock.protocols.rapidbyte.wire.messages import ValidationReport
from penstock.runtimes.contract import ConnectionStats

_KINDS: dict[Role, int] = {"source": 0, "destination": 1, "transform": 2}


def check_result(report: ValidationReport, log: EventSink) -> CheckResult:
    """Converts the result of ``validate``. Its warnings go to ``log``."""
    for warning in report.warnings:
        log(LogEvent("WARN", warning))
    if report.status == "warning":
        log(LogEvent("WARN", report.message))
    return CheckResult(report.status != "failed", report.message or None)


def log_event(event: ComponentLog) -> LogEvent:
    """Converts a line of the component's log."""
    return LogEvent(event.level, event.message)


def reject_event(event: DeadLettered, stream: StreamId) -> Reject:
    """Converts a dead letter."""
    letter = event.letter
    reason = f"{letter.error_category}: {letter.error_message}"
    return Reject(stream, reason, letter.record_json.encode())


def checkpoint_problems(
    event: CheckpointCall, role: Role, name: str, of: str = "this stream", *, strict: bool = False
) -> list[LogEvent | SkippedItems]:
    """Checks that a checkpoint is well formed, and of this role and stream. Returns the events that
    report a defect; empty: it is valid. ``name``: the connector's name for the stream; ``of``: the
    name to show. As in v4 the call's kind and the payload's stream decide; ``strict``: the
    payload's kind must be a destination's too."""
    payload = event.payload
    if payload is None:
        return [
            LogEvent("WARN", f"a malformed checkpoint: {event.problem}"),
            SkippedItems("malformed:checkpoint"),
        ]
    ours = event.kind == _KINDS[role] and payload.stream == name
    if ours and not (strict and payload.kind != "dest"):
        return []
    described = f"kind {event.kind} ({payload.kind}) of stream {payload.stream!r}"
    return [
        LogEvent("WARN", f"a checkpoint that is not this {role}'s of {of}: {described}"),
        SkippedItems("foreign:checkpoint"),
    ]


def metric_events(
    ended: RunEnded, stream: StreamId, stats: ConnectionStats
) -> list[ConnectorMetrics]:
    """Returns the metrics of a run, as at most one event. Sets ``stats.spoke`` where the run
    returned a summary."""
    stats.spoke |= ended.summary is not None
    series: list[dict[str, Any]] = msgspec.to_builtins(ended.metrics)
    return [ConnectorMetrics(stream, series)] if series else []

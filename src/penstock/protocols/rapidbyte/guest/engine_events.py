"""Turns what a component tells into the engine's events and answers; the same for every role.

Not here: frames (each role's business), errors of a run (``errors``).
"""

from typing import Any

import msgspec

from penstock.errors import Role
from penstock.model.catalog import CheckResult, StreamId
from penstock.model.events import Counted, Log, Measured, Reject
from penstock.protocols.contract import EventSink
from penstock.protocols.rapidbyte.guest.events import Checkpoint, Ended, Logged, PutAside
from penstock.protocols.rapidbyte.wire.messages import ValidationReport
from penstock.runtimes.contract import ConnectionStats

_KINDS: dict[Role, int] = {"source": 0, "destination": 1, "transform": 2}


def result_of(report: ValidationReport, log: EventSink) -> CheckResult:
    for warning in report.warnings:
        log(Log("WARN", warning))
    if report.status == "warning":
        log(Log("WARN", report.message))
    return CheckResult(report.status != "failed", report.message or None)


def line(told: Logged) -> Log:
    return Log(told.level, told.message)


def rejected(told: PutAside, stream: StreamId) -> Reject:
    letter = told.letter
    reason = f"{letter.error_category}: {letter.error_message}"
    return Reject(stream, reason, letter.record_json.encode())


def faults(
    told: Checkpoint, role: Role, name: str, of: str = "this stream", *, strict: bool = False
) -> list[Log | Counted]:
    """Why a checkpoint is none of this role's of the stream that the connector knows as ``name``;
    empty: it is one. As in v4 the call's kind and the payload's stream decide; ``strict``: a
    destination's own kind too. ``of``: the stream as it is shown."""
    payload = told.payload
    if payload is None:
        return [
            Log("WARN", f"a checkpoint that is none: {told.problem}"),
            Counted("malformed:checkpoint"),
        ]
    ours = told.kind == _KINDS[role] and payload.stream == name
    if ours and not (strict and payload.kind != "dest"):
        return []
    said = f"kind {told.kind} ({payload.kind}) of stream {payload.stream!r}"
    return [
        Log("WARN", f"a checkpoint that is not this {role}'s of {of}: {said}"),
        Counted("foreign:checkpoint"),
    ]


def measured(told: Ended, stream: StreamId, stats: ConnectionStats) -> list[Measured]:
    """What a run counted, if it counted; ``stats`` note that the connector has spoken."""
    stats.spoke |= told.summary is not None
    series: list[dict[str, Any]] = msgspec.to_builtins(told.metrics)
    return [Measured(stream, series)] if series else []

"""The report of a run: the shape that the command-line contract gives, and nothing beside it."""

from typing import Any, Literal

import msgspec

RunStatus = Literal["succeeded", "partial", "failed", "cancelled"]
StreamOutcome = Literal["complete", "incomplete", "failed"]


class StreamReport(msgspec.Struct, kw_only=True):
    """``read = committed + rejected + filtered`` wherever ``status`` is ``complete`` (L8).

    ``table``: where its rows lie. Into a destination connector it is None and ``target`` is the
    stream's name there; then ``written`` are the rows that the connector was given in this run,
    ``committed`` those that it acked, ``sent_again`` those of ``written`` that it had been given
    before, by an earlier run or an earlier attempt of this one.

    ``attempts``: how often the source was started for it in this run. ``expected_rows``,
    ``expected_bytes``: how much the source said that it would send; None: it did not say."""

    namespace: str | None
    name: str
    status: StreamOutcome = "incomplete"
    read: int = 0
    committed: int = 0
    written: int = 0
    rejected: int = 0
    filtered: int = 0
    sent_again: int = 0
    bytes: int = 0
    states: int = 0
    lane: int = 0
    attempts: int = 0
    expected_rows: int | None = None
    expected_bytes: int | None = None
    table: str | None = None
    target: str | None = None
    error: dict[str, Any] | None = None


class TimeSpent(msgspec.Struct, kw_only=True):
    """Wall seconds; see the command-line contract for what each one spans."""

    install: float = 0.0
    start: float = 0.0
    extract: float = 0.0
    source_wait: float = 0.0
    decode: float = 0.0
    load: float = 0.0
    destination_wait: float = 0.0


class Memory(msgspec.Struct, kw_only=True):
    python_peak_bytes: int = 0
    jvm_peak_bytes: int = 0


class Report(msgspec.Struct, kw_only=True):
    """``metrics``: what connectors measured of themselves, ``{"stream", "series"}`` each, in their
    own terms. ``expected_rows``, ``expected_bytes``: how much the source said that it would send of
    all streams together; None: it did not say."""

    run: str
    pipeline: str
    status: RunStatus
    exit_code: int
    started_at: str
    seconds: float
    guarantee: Literal["exactly-once", "at-least-once"]
    streams: list[StreamReport]
    time: TimeSpent
    memory: Memory
    notes: list[str]
    metrics: list[dict[str, Any]] = []
    expected_rows: int | None = None
    expected_bytes: int | None = None
    error: dict[str, Any] | None
    log: str

"""Declares the data about an ended run that goes to OpenTelemetry and OpenLineage. Data only.

Neighbours: ``engine.reporting.telemetry`` makes it, ``engine.reporting.opentelemetry`` and
``engine.reporting.openlineage`` send it.
"""

from collections.abc import Mapping

import msgspec

from penstock.engine.reporting.timeline import Span
from penstock.engine.specs.plan import PlannedStream
from penstock.model.catalog import StreamId
from penstock.model.report import Report, RunStatus


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended. ``began``, ``ended``: seconds since 1970; ``clock``: added to a reading
    of ``time.monotonic`` gives such seconds. ``error``: its message, without secrets. ``planned``,
    ``lived`` (two readings of ``time.monotonic``): by stream, as far as the run came. ``report``
    None: the run failed before it began."""

    run: str
    pipeline: str
    status: RunStatus
    exit_code: int
    began: float
    ended: float
    clock: float
    error: str | None
    spans: tuple[Span, ...] = ()
    planned: Mapping[StreamId, PlannedStream] = {}
    lived: Mapping[StreamId, tuple[float, float]] = {}
    report: Report | None = None

"""Sends an ended run to an OpenTelemetry collector, as a trace and as metrics.

The library's own environment variables configure it: endpoint, headers, timeout, sampler, resource.
Everything is made from the run's own records, once it has ended: a run pays nothing for it while it
moves rows. Not here: whether it is requested, its bounded time (``engine.reporting.telemetry``).
"""

import math
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from penstock.engine.reporting.run_end import RunEnd
from penstock.engine.reporting.timeline import Span
from penstock.model.catalog import StreamId
from penstock.model.report import StreamReport

_BATCH = 512  # spans of one request
_COUNTS = ("read", "committed", "written", "rejected", "filtered")


def send_trace(end: RunEnd, parent: Context) -> str | None:
    """Sends a span of the run, with one child for each phase, lane, load and stream. ``parent``:
    the caller's context. Returns what went wrong."""
    kept, exporter = InMemorySpanExporter(), OTLPSpanExporter()
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    try:
        _trace(provider.get_tracer("penstock", _version()), end, parent)
        return _export(exporter, kept.get_finished_spans())
    finally:
        provider.shutdown()
        exporter.shutdown()


def send_metrics(end: RunEnd) -> str | None:
    """Sends the run's counts and seconds. Returns what went wrong."""
    exporter = _Exporter()
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    provider = MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
    try:
        _measure(provider, end)
        provider.force_flush()
    finally:
        provider.shutdown()
    return None if exporter.taken else "the collector did not take the metrics"


class _Exporter(OTLPMetricExporter):
    """Remembers whether the collector took the metrics, which a reader does not report."""

    taken = True

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)
        self.taken &= result is MetricExportResult.SUCCESS
        return result


def _export(exporter: OTLPSpanExporter, spans: Sequence[ReadableSpan]) -> str | None:
    for at in range(0, len(spans), _BATCH):
        if exporter.export(spans[at : at + _BATCH]) is not SpanExportResult.SUCCESS:
            return "the collector did not take the trace"
    return None


def _resource() -> Resource:
    """Returns the resource. The service is ``penstock``, unless the environment sets another."""
    named = Resource({"service.name": "penstock", "service.version": _version()})
    return Resource.create().merge(named).merge(OTELResourceDetector().detect())


def _trace(tracer: trace.Tracer, end: RunEnd, parent: Context) -> None:
    about: dict[str, Any] = {
        "penstock.run": end.run,
        "penstock.pipeline": end.pipeline,
        "penstock.status": end.status,
        "penstock.exit_code": end.exit_code,
    }
    if end.report is not None:
        about["penstock.guarantee"] = end.report.guarantee
        about |= {f"penstock.seconds.{k}": v for k, v in _seconds(end).items()}
    root = tracer.start_span("run", parent, attributes=about, start_time=_nanos(end.began))
    under = trace.set_span_in_context(root, parent)
    for span in sorted(end.spans, key=lambda s: s.begin):
        _child(tracer, under, end, span)
    lines = {(s.namespace, s.name): s for s in end.report.streams} if end.report else {}
    for stream, (begin, last) in end.lived.items():
        line = lines.get((stream.namespace, stream.name))
        if line is not None:
            _stream(tracer, under, line, str(stream), end.clock + begin, end.clock + last)
    if end.error is not None:
        root.set_status(Status(StatusCode.ERROR, end.error))
    elif end.exit_code == 0:
        root.set_status(StatusCode.OK)
    root.end(_nanos(end.ended))


def _child(tracer: trace.Tracer, under: Context, end: RunEnd, span: Span) -> None:
    about = {f"penstock.{key}": value for key, value in span.more.items()}
    about["penstock.track"] = span.track
    begin = _nanos(end.clock + span.begin)
    made = tracer.start_span(span.name, under, attributes=about, start_time=begin)
    made.end(_nanos(end.clock + span.end))


def _stream(
    tracer: trace.Tracer, under: Context, line: StreamReport, name: str, begin: float, last: float
) -> None:
    about: dict[str, Any] = {
        "penstock.stream": name,
        "penstock.status": line.status,
        "penstock.lane": line.lane,
        "penstock.attempts": line.attempts,
        "penstock.bytes": line.bytes,
        **{f"penstock.rows.{count}": getattr(line, count) for count in _COUNTS},
    }
    span = tracer.start_span(f"stream {name}", under, attributes=about, start_time=_nanos(begin))
    if line.error is not None:
        span.set_status(Status(StatusCode.ERROR, str(line.error.get("message", ""))))
    elif line.status == "complete":
        span.set_status(StatusCode.OK)
    span.end(_nanos(last))


def _measure(provider: MeterProvider, end: RunEnd) -> None:
    meter = provider.get_meter("penstock", _version())
    of_run = {"penstock.pipeline": end.pipeline, "penstock.status": end.status}
    duration = meter.create_histogram("penstock.run.duration", "s", "Wall time of runs")
    duration.record(end.ended - end.began, of_run)
    meter.create_counter("penstock.runs", "{run}", "Runs that ended").add(1, of_run)
    if end.report is None:
        return
    phases = meter.create_histogram("penstock.phase.duration", "s", "Wall time of a run's phases")
    for phase, seconds in _seconds(end).items():
        phases.record(seconds, {"penstock.pipeline": end.pipeline, "penstock.phase": phase})
    counters = {c: meter.create_counter(f"penstock.rows.{c}", "{row}") for c in _COUNTS}
    size = meter.create_counter("penstock.bytes", "By", "Bytes of the records that were loaded")
    for line in end.report.streams:
        name = str(StreamId(line.namespace, line.name))
        of_stream = {"penstock.pipeline": end.pipeline, "penstock.stream": name}
        for count, counter in counters.items():
            if (rows := getattr(line, count)) >= 0:
                counter.add(rows, of_stream)
        size.add(line.bytes, of_stream)


def _seconds(end: RunEnd) -> Mapping[str, float]:
    return {} if end.report is None else msgspec.structs.asdict(end.report.time)


def _version() -> str:
    return metadata.version("penstock")


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)

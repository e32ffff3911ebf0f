"""Reports a run to OpenTelemetry and OpenLineage, where their environment variables request it.

A run pays nothing without them: their libraries are imported only on request. Reporting does not
affect a run: it happens in threads of its own, its time is bounded, and a failure is one sentence
in the report. Neighbours: ``engine.reporting.opentelemetry`` and ``engine.reporting.openlineage``
send; ``engine.run`` decides when.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.config.packages import install_extra
from penstock.config.pipeline import Pipeline
from penstock.engine.reporting.run_end import RunEnd
from penstock.engine.reporting.timeline import Timeline
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import Cancelled, PenstockError
from penstock.model.catalog import StreamId
from penstock.model.report import Report
from penstock.runtimes.masking import Masker

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from penstock.engine.reporting.openlineage import Lineage

FLUSH_SECONDS = 10.0  # at the end of a run, for both together
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NOWHERE = logging.NullHandler()  # one instance, since a logger keeps the same handler only once


class Telemetry:
    """The telemetry of one run of a pipeline. Requested but unavailable telemetry is only a note of
    the run: such variables are often set for all programs of a machine."""

    def __init__(self, pipeline: Pipeline, observer: RunObserver) -> None:
        self._pipeline, self._observer = pipeline, observer
        self._began, self._clock = time.time(), time.time() - time.monotonic()
        self._problems: list[str] = []
        self._signals = [s for s in ("TRACES", "METRICS") if self._wanted(s)]
        self._lineage = _lineage_wanted()
        self._parent: Context | None = None
        self._made: Lineage | None = None
        self._started = False
        self._otel, self._events = _Sender("OpenTelemetry"), _Sender("OpenLineage")
        if self._signals and self._lacks(
            _ENDPOINT, "otel", "opentelemetry.exporter.otlp.proto.http", "OTEL_SDK_DISABLED"
        ):
            self._signals = []
        if self._lineage and self._lacks(
            "OPENLINEAGE_URL", "openlineage", "openlineage.client", "OPENLINEAGE_DISABLED"
        ):
            self._lineage = False
        if self._signals:
            from opentelemetry import context

            self._parent = context.get_current()

    def _wanted(self, signal: str) -> bool:
        """Whether ``OTEL_EXPORTER_OTLP_*`` requests a signal, by the protocol that is sent."""
        if not _asked_for(signal):
            return False
        names = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
        name = next((n for n in names if os.environ.get(n)), None)
        if name is None or os.environ[name] == "http/protobuf":
            return True
        self._left_out(
            f"OpenTelemetry gets nothing of this run: {name} is {os.environ[name]}, and Penstock "
            f"sends HTTP only (set {name}=http/protobuf and the collector's address for it, as "
            "http://HOST:4318, or OTEL_SDK_DISABLED=true)"
        )
        return False

    def _lacks(self, asked: str, extra: str, module: str, off: str) -> bool:
        try:
            if find_spec(module) is not None:
                return False
        except ModuleNotFoundError:
            pass
        self._left_out(
            f"the environment requests telemetry ({asked}), and its library is not installed: "
            f"{install_extra(extra)}, or set {off}=true"
        )
        return True

    def _left_out(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def planned(
        self, run: str, planned: Mapping[StreamId, PlannedStream], into: Mapping[StreamId, str]
    ) -> None:
        """Reports what the run is about to read. ``into``: the location of each stream's rows."""
        if self._lineage:
            self._started = True
            planned, into = dict(planned), dict(into)
            self._events.send(lambda: self._events_of().start(run, self._began, planned, into))

    def ended(
        self,
        report: Report,
        timeline: Timeline,
        planned: Mapping[StreamId, PlannedStream],
        lived: Mapping[StreamId, tuple[float, float]],
    ) -> list[str]:
        """Reports the end of a run that has a report. Returns what went wrong."""
        if not (self._signals or self._lineage):
            return self._problems
        error = report.error
        return self._tell(
            RunEnd(
                run=report.run,
                pipeline=report.pipeline,
                status=report.status,
                exit_code=report.exit_code,
                began=self._began,
                ended=time.time(),
                clock=self._clock,
                error=None if error is None else self._masked(str(error.get("message", ""))),
                spans=timeline.spans(),
                planned=planned,
                lived=lived,
                report=report,
            )
        )

    def failed(self, run: str, error: PenstockError) -> None:
        """Reports a run that failed before it began."""
        end = RunEnd(
            run=run,
            pipeline=self._pipeline.pipeline,
            status="cancelled" if isinstance(error, Cancelled) else "failed",
            exit_code=error.exit_code,
            began=self._began,
            ended=time.time(),
            clock=self._clock,
            error=self._masked(error.message),
        )
        problems = self._tell(end) if self._signals or self._lineage else self._problems
        for problem in problems:
            self._observer.note(problem)

    def _tell(self, end: RunEnd) -> list[str]:
        deadline = time.monotonic() + FLUSH_SECONDS
        parent = self._parent
        if parent is not None:
            if "TRACES" in self._signals:
                self._otel.send(lambda: _trace(end, parent))
            if "METRICS" in self._signals:
                self._otel.send(lambda: _metrics(end))
        if self._lineage:
            if not self._started:
                self.planned(end.run, {}, {})
            self._events.send(lambda: self._events_of().end(end))
            self._events.send(lambda: self._events_of().close())
        problems = [*self._otel.finish(deadline), *self._events.finish(deadline)]
        return [*self._problems, *(self._masked(problem) for problem in problems)]

    def _events_of(self) -> "Lineage":
        """Returns the run's lineage events. For the sender's thread only: the import takes half a
        second."""
        from penstock.engine.reporting.openlineage import Lineage

        if self._made is None:
            self._made = Lineage(self._pipeline)
        return self._made

    def _masked(self, text: str) -> str:
        return Masker(self._pipeline.secret_values).mask(text)


class _Sender:
    """Sends one thing after the other, in a thread that does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], str | None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._problems: list[str] = []
        self._given_up = False

    def send(self, call: Callable[[], str | None]) -> None:
        if self._thread is None:
            # a library's log goes to the user's handlers, and to nothing (not stderr) without any
            logging.getLogger(self._name.lower()).addHandler(_NOWHERE)
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(call)

    def finish(self, deadline: float) -> list[str]:
        """Waits until everything is sent, at most until ``deadline``. Returns the first failure."""
        if self._thread is None:
            return []
        self._queue.put(None)
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        problems = [*self._problems]
        if self._thread.is_alive():
            self._given_up = True
            problems.append("it did not answer in time")
        text = f"{self._name} did not get all telemetry of this run, which is as it was: "
        return [text + problem for problem in problems[:1]]

    def _work(self) -> None:
        while (call := self._queue.get()) is not None and not self._given_up:
            try:
                problem = call()
            except Exception as e:  # an error of a library that this run does not depend on
                problem = _reason(e)
            if problem is not None:
                self._problems.append(problem)


def _trace(end: RunEnd, parent: "Context") -> str | None:
    from penstock.engine.reporting.opentelemetry import send_trace

    return send_trace(end, parent)


def _metrics(end: RunEnd) -> str | None:
    from penstock.engine.reporting.opentelemetry import send_metrics

    return send_metrics(end)


def _reason(error: Exception) -> str:
    """Describes an error without its message, which has the address and so may hold a secret."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(status, int):
        return f"the server answered {status}"
    what = "the server cannot be reached" if isinstance(error, OSError) else "its library failed"
    return f"{what} ({type(error).__name__})"


def _asked_for(signal: str) -> bool:
    env = os.environ
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if not (env.get(_ENDPOINT) or env.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")):
        return False
    return "otlp" in (env.get(f"OTEL_{signal}_EXPORTER") or "otlp").split(",")


def _lineage_wanted() -> bool:
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(
        (name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG") and value)
        or name.startswith("OPENLINEAGE__TRANSPORT")
        for name, value in os.environ.items()
    )

"""Runs several pipelines one after the other, on one Spark session: the syncs of a project.

Each is a run of its own, with its own lease, log, state and report. A failed one does not affect
the others; a cancelled one is the last. Not here: one run (``run``), the project
(``config.project``).
"""

import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.plan.model_source import model_needs
from penstock.engine.run.run import defect
from penstock.engine.run.spark import SharedSession, java_died
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.observer import RunObserver
from penstock.errors import Cancelled, PenstockError
from penstock.model.report import Report
from penstock.runtimes.masking import Masker
from penstock.tables.contract import SessionNeeds

Observe = Callable[[str], AbstractContextManager[RunObserver]]
"""Returns the observer for the run of the pipeline with this id."""


class PipelineResult(msgspec.Struct, kw_only=True):
    """The outcome of one pipeline. ``report``: None where it failed before it began, with
    ``error``, or where it was not begun."""

    sync: str
    pipeline: str
    status: str
    exit_code: int
    report: Report | None = None
    error: dict[str, Any] | None = None


def run_all(
    pipelines: Mapping[str, Pipeline], home: Home, *, observe: Observe, **options: Any
) -> list[PipelineResult]:
    """Runs the pipelines in order and returns the outcome of each. ``options``: of
    :func:`~penstock.engine.run.start.run_pipeline`. Raises nothing that one run raises."""
    needs = SessionNeeds()
    for pipeline in pipelines.values():
        needs = needs.also(model_needs(pipeline))
    found: list[PipelineResult] = []
    with ExitStack() as stack:
        shared = SharedSession(open_until=stack, needs=needs)
        for id_, pipeline in pipelines.items():
            if found and found[-1].exit_code == Cancelled.exit_code:
                status, code = "not run", Cancelled.exit_code
                found.append(
                    PipelineResult(
                        sync=id_, pipeline=pipeline.pipeline, status=status, exit_code=code
                    )
                )
                continue
            with observe(id_) as observer:
                found.append(_settled(id_, pipeline, home, observer, shared, options))
            if java_died() is not None:
                stack.close()  # the next one gets a session of its own
    return found


def _settled(
    id_: str,
    pipeline: Pipeline,
    home: Home,
    observer: RunObserver,
    shared: SharedSession,
    options: Mapping[str, Any],
) -> PipelineResult:
    try:
        report = run_pipeline(pipeline, home, observer=observer, shared=shared, **options)
    except PenstockError as e:
        status = "cancelled" if isinstance(e, Cancelled) else "failed"
        return PipelineResult(
            sync=id_,
            pipeline=pipeline.pipeline,
            status=status,
            exit_code=e.exit_code,
            error=e.as_report(),
        )
    except Exception as e:
        masker = Masker(pipeline.secret_values)
        observer.log("DEBUG", "penstock", masker.mask("".join(traceback.format_exception(e))))
        fault = defect(e, masker, "that -vv shows")
        return PipelineResult(
            sync=id_,
            pipeline=pipeline.pipeline,
            status="failed",
            exit_code=fault.exit_code,
            error=fault.as_report(),
        )
    return PipelineResult(
        sync=id_,
        pipeline=pipeline.pipeline,
        status=report.status,
        exit_code=report.exit_code,
        report=report,
        error=report.error,
    )

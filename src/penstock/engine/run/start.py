"""Starts runs of pipelines: from the file, or from the messages on stdin of ``penstock serve``.

Opens the store, refuses what can be refused without a run, executes the run, sends its report to
hooks and telemetry, and stops runs at a signal. Not here: the run (``run``), several of them
(``run_all``). Neighbours: ``cli`` and ``api`` call the functions.
"""

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import process_start
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.channel.asked_log import AskedLog
from penstock.engine.channel.named_pipeline import CompleteCommands
from penstock.engine.reporting.hooks import Hooks
from penstock.engine.reporting.telemetry import Telemetry
from penstock.engine.reporting.timeline import refuse_unwritable
from penstock.engine.run.attempts import keep_attempt, new_run_id, now_text, secrets_of_words
from penstock.engine.run.reject_retry import RetryRequest
from penstock.engine.run.run import Run, defect
from penstock.engine.run.spark import SharedSession
from penstock.engine.serve import Say, ServedInput, input_pipe, refuse_remote
from penstock.engine.specs.observer import RunObserver
from penstock.errors import Defect, PenstockError, not_ours
from penstock.model.catalog import Catalog, StreamId
from penstock.model.report import Report
from penstock.protocols.hosts import HostGeneration
from penstock.runtimes.masking import Masker
from penstock.runtimes.private_files import remove_left
from penstock.spark.error_text import silent
from penstock.store.contract import Store
from penstock.store.open import open_store_of_run

if TYPE_CHECKING:
    from penstock.spark.model import Model


class _RunningRuns:
    """The runs of this process, each with the event that stops it. Without a lock: a signal's
    handler may interrupt any method."""

    def __init__(self) -> None:
        self._stops: list[threading.Event] = []
        self._asked_before = False

    def stop(self) -> None:
        """Stops every run; where none has begun yet, the next one."""
        stops = [*self._stops]
        self._asked_before = not stops
        for stop in stops:
            stop.set()

    @contextmanager
    def one(self, stop: threading.Event) -> Generator[None]:
        """Registers a run during the block."""
        self._stops.append(stop)
        try:
            if self._asked_before:
                self._asked_before = False
                stop.set()
            yield
        finally:
            self._stops.remove(stop)


_running = _RunningRuns()


def request_cancel() -> None:
    """Stops the runs of this process at their next step (Ctrl-C, SIGTERM)."""
    _running.stop()


def run_pipeline(
    pipeline: Pipeline,
    home: Home,
    *,
    observer: RunObserver,
    dry_run: bool = False,
    limit: int | None = None,
    full_refresh: bool = False,
    refresh: bool = False,
    recreate: bool = False,
    daemon: bool | None = None,
    shared: SharedSession | None = None,
    cancel: threading.Event | None = None,
    model: "Model | None" = None,
    profile: Path | None = None,
    retry: RetryRequest | None = None,
    yes: bool = False,
) -> Report:
    """Runs one sync and returns its report. Raises ``PenstockError`` for what fails before it
    begins (configuration, a locked pipeline, a source that does not answer); later failures are in
    the report. ``dry_run`` and ``limit`` read and decode, and keep nothing. ``refresh``: the source
    is discovered before it is read. ``recreate``: read the streams from the start; once one is
    complete, its rows replace those of its table. ``daemon``: an earlier run may have left Spark's
    JVM, and this one leaves it for the next. ``shared``: keeps the session open after the run, for
    the next one of this process. ``cancel``: stops this run once it is set. ``model``: what the
    source ``spark:`` reads, in place of its reference. ``profile``: a file for the run's timeline;
    an unwritable one is refused before the run. ``retry``: reads rejects of earlier runs in place
    of the source. ``yes`` permits what removes rows: tables of streams without a requested history
    lose theirs, and rows of other pipelines are replaced."""
    began = process_start.take()
    if profile is not None:
        refuse_unwritable(profile)
    dry, run = dry_run or limit is not None, None
    hooks, telemetry = (None, None) if dry else _notified(pipeline, observer)
    run_id, cancel = new_run_id(), cancel or threading.Event()
    remove_left()
    started_at, at, asked = now_text(), time.monotonic(), AskedLog(observer)
    try:
        with ExitStack() as stack:
            stack.enter_context(_running.one(cancel))
            store = _store_of(pipeline, home, cancel, observer)
            stack.callback(store.close)
            run = Run(
                pipeline, home, store, asked, dry=dry, limit=limit, run_id=run_id,
                refresh=refresh, daemon=daemon, shared=shared, cancel=cancel, model=model,
                telemetry=telemetry, began=began, retry=retry, yes=yes,
            )  # fmt: skip
            report = run.execute(stack, full_refresh=full_refresh or recreate, recreate=recreate)
            _write_profile(run, profile, observer)
    except Exception as e:
        error = _failed(e, pipeline, home, run_id, telemetry, hooks)
        if not (dry or (run is not None and run.begun)):
            keep_attempt(
                home, run_id, pipeline.pipeline, started_at, time.monotonic() - at, error,
                masker=_masker(pipeline), asked=asked, cause=e,
            )  # fmt: skip
        if error is not e and not isinstance(error, Defect):
            raise error from e
        raise
    return _closed(run, report, hooks, telemetry, observer)


def _notified(pipeline: Pipeline, observer: RunObserver) -> tuple[Hooks, Telemetry]:
    """Returns what is notified of the run's end. Raises ``ConfigError`` where a hook's program is
    missing."""
    hooks, telemetry = Hooks(pipeline, observer), Telemetry(pipeline, observer)
    hooks.refuse_missing()
    return hooks, telemetry


def _write_profile(run: Run, profile: Path | None, observer: RunObserver) -> None:
    try:
        if profile is not None:
            run.timeline.write(profile, run.id)
    except OSError as e:
        observer.log("ERROR", "penstock", f"the profile could not be written: {e}")


def _failed(
    failure: Exception,
    pipeline: Pipeline,
    home: Home,
    run_id: str,
    telemetry: Telemetry | None,
    hooks: Hooks | None,
) -> PenstockError:
    """Returns the failure as an error of the tree, after telemetry and hooks were notified."""
    error = _in_tree(failure, Masker(pipeline.secret_values))
    CompleteCommands(pipeline, home).error(error)
    if telemetry is not None:
        telemetry.failed(run_id, error)
    if hooks is not None:
        hooks.failed(error)
    return error


def _masker(pipeline: Pipeline) -> Masker:
    """Returns the masker of the pipeline's secrets, and of possible secrets in a connector's
    command."""
    ends = (pipeline.source, pipeline.destination, *pipeline.transforms)
    return Masker(pipeline.secret_values | secrets_of_words(end.use for end in ends))


def _in_tree(error: Exception, masker: Masker) -> PenstockError:
    """Returns the error with which a run's end is reported."""
    if isinstance(error, PenstockError):
        return error
    return silent(error) or not_ours(error) or defect(error, masker)


def _store_of(
    pipeline: Pipeline, home: Home, cancel: threading.Event, observer: RunObserver
) -> Store:
    def log(text: str) -> None:
        observer.log("WARN", "penstock", text)

    return open_store_of_run(home.state_url(pipeline.state), cancel.is_set, log)


def _closed(
    run: Run,
    report: Report,
    hooks: Hooks | None,
    telemetry: Telemetry | None,
    observer: RunObserver,
) -> Report:
    """Sends the report of an ended run to telemetry and hooks (None: nothing is kept), and adds
    their problems to its notes."""
    run.closed(report)
    problems = [] if telemetry is None else run.send_telemetry(telemetry, report)
    report.notes += problems
    if hooks is not None and (problem := hooks.ended(report)) is not None:
        problems.append(problem)
        report.notes.append(problem)
    for problem in problems:
        observer.note(problem)
    if hooks is not None:
        _write_closed(run, report, observer)
    return report


def _write_closed(run: Run, report: Report, observer: RunObserver) -> None:
    """Writes the report once more, with its last seconds and notes."""
    try:
        run.write_report(report)
    except OSError as e:  # the run is committed, and its report was written before
        observer.log("ERROR", "penstock", f"the report lacks its last notes: {e}")


def serve_input(
    pipeline: Pipeline,
    home: Home,
    *,
    observer: RunObserver,
    protocol: str,
    catalog: Catalog,
    say: Say,
    generations: Mapping[StreamId, HostGeneration] | None = None,
) -> Report:
    """Runs one sync of the messages on stdin, see ``engine.serve``. Raises as ``run_pipeline``."""
    refuse_remote(pipeline)
    with ExitStack() as stack:
        cancel = threading.Event()
        stack.enter_context(_running.one(cancel))
        store = _store_of(pipeline, home, cancel, observer)
        stack.callback(store.close)

        def broke(error: OSError) -> None:
            observer.log("ERROR", "penstock", f"the input cannot be read any more: {error}")
            cancel.set()

        pipe = stack.enter_context(input_pipe(broke))
        served = ServedInput(
            protocol=protocol,
            catalog=catalog,
            say=say,
            pipe=pipe,
            generations=generations or {},
        )
        run = Run(
            pipeline, home, store, observer, dry=False, limit=None, run_id=new_run_id(),
            served=served, cancel=cancel, began=process_start.take(),
        )  # fmt: skip
        report = run.execute(stack, full_refresh=False)
    run.closed(report)
    _write_closed(run, report, observer)
    return report

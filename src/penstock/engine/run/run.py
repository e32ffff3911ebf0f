"""Runs one pipeline: opens what a sync needs, runs it, makes the report, closes everything.

The order matters: steps without Java come first (installing, spec, validation, the lease, discover,
plan), so that a wrong configuration fails in a second. Spark starts in parallel, where it is known
which Spark a run needs, and is given up where the run is refused. Neighbours: ``start`` calls it;
``engine.plan.prepare`` does what comes before the first record, ``engine.sync.sync`` what comes
after it.
"""

import secrets
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.config.did_you_mean import hint
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.protocol_spec import spec_of
from penstock.engine.channel.asked_log import AskedLog
from penstock.engine.channel.heartbeat import LEASE_TTL, LeaseHeartbeat, stopped
from penstock.engine.channel.lease import take_lease
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.channel.named_pipeline import CompleteCommands, has_file, used_file
from penstock.engine.channel.run_log import RunLog
from penstock.engine.deliver.load_plan import covered
from penstock.engine.deliver.session import SyncSession
from penstock.engine.inspect.runs import earlier_reject_folders
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.log import FileLog
from penstock.engine.log.repeated_rejects import EarlierRejects, RepeatedRejects
from penstock.engine.log.sealed_rows import come_twice, count_sealed
from penstock.engine.plan.catalog_check import CatalogCheck
from penstock.engine.plan.destination import destination_of
from penstock.engine.plan.endpoint import DESTINATION, SOURCE, running_folder
from penstock.engine.plan.feeder_jobs import rejected_keys
from penstock.engine.plan.lost_tables import found_tables, refuse_moved, replaced_rows
from penstock.engine.plan.open_source import source_of, source_reference
from penstock.engine.plan.place import SettledPlace, settle_place, store_place
from penstock.engine.plan.prepare import Prepared, prepare, remember
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.plan.source_protocol import refuse_other_source
from penstock.engine.plan.transform_endpoint import transforms_of
from penstock.engine.reporting.accounting import Accounting
from penstock.engine.reporting.telemetry import Telemetry
from penstock.engine.reporting.timeline import DISCOVER, PREPARE
from penstock.engine.run.connector_configs import ConnectorConfigs
from penstock.engine.run.env_file_note import new_names_note
from penstock.engine.run.log_place import settle_log
from penstock.engine.run.monitor import RunMonitor
from penstock.engine.run.old_runs import end_old_runs
from penstock.engine.run.reject_retry import RejectRetry, RetryRequest, leave_unread, tried_in
from penstock.engine.run.spark import (
    RUN_LOG,
    RunSpark,
    SharedSession,
    java_died,
    jvm_peak,
    kill_java,
)
from penstock.engine.run.state_resets import ask_for_refresh, reset_overwritten, reset_states
from penstock.engine.run.stop_bound import StopBound
from penstock.engine.run.wiring import RunParts
from penstock.engine.serve import ServedInput
from penstock.engine.specs.failpoints import announce_driver
from penstock.engine.specs.lane import KeysAt
from penstock.engine.specs.observer import RunObserver, counted
from penstock.engine.specs.plan import SyncOutcome
from penstock.engine.sync.ports import Discovery, DiscoveryDone
from penstock.engine.sync.sync import SyncRun
from penstock.errors import (
    Cancelled,
    ConfigError,
    Defect,
    DestinationError,
    LeaseLost,
    LogError,
    PenstockError,
    SourceError,
    StateError,
    not_ours,
)
from penstock.files import replace
from penstock.model.catalog import SyncMode
from penstock.model.report import Report
from penstock.model.state import StoredState
from penstock.runtimes.masking import Masker
from penstock.short_texts import bounded
from penstock.spark.error_text import silent
from penstock.store.contract import Lease, Store
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered
from penstock.store.task_keys import keys_url

if TYPE_CHECKING:
    from penstock.spark.model import Model

DEATH_SECONDS = 2.0  # time for a JVM that stopped answering to be seen as dead


class BuiltSync(NamedTuple):
    """A built sync, with what it was built from."""

    prepared: Prepared
    sync: SyncRun
    monitor: RunMonitor
    mailbox: Mailbox


class Run:
    """Runs one sync; :meth:`execute` once."""

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        store: Store,
        observer: RunObserver | AskedLog,
        *,
        dry: bool,
        limit: int | None,
        run_id: str,
        served: ServedInput | None = None,
        refresh: bool = False,
        daemon: bool | None = None,
        shared: SharedSession | None = None,
        cancel: threading.Event | None = None,
        model: "Model | None" = None,
        telemetry: Telemetry | None = None,
        began: float | None = None,
        retry: RetryRequest | None = None,
        yes: bool = False,
    ) -> None:
        """``began``: when the process began, if it began for this run (a reading of
        ``time.monotonic``). ``retry``: reads these rejects in place of the source.
        ``yes``: as in ``start.run_pipeline``."""
        self.begun = False  # the store has it
        self._asked_retry = retry
        self._yes = yes
        self._retry: RejectRetry | None = None
        self._telemetry = telemetry
        self._refresh = refresh or retry is not None
        self._model = model
        self._cancel = cancel or threading.Event()
        self._pipeline, self._home, self._store = pipeline, home, store
        self._observer = observer if isinstance(observer, AskedLog) else AskedLog(observer)
        self._shown = self._observer.shown
        self._dry, self._limit, self._served = dry, limit, served
        self.id = run_id
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._folder = home.run(self.id)
        self._commands = CompleteCommands(pipeline, home)
        self._accounting = Accounting(observer, self._commands.text)
        self.timeline = self._accounting.timeline
        self._began = self.timeline.began if began is None else began
        self._reported_at = self._began
        self._spark = RunSpark(
            pipeline, home, self._folder, observer, self._accounting, daemon=daemon, shared=shared
        )

    def execute(self, stack: ExitStack, *, full_refresh: bool, recreate: bool = False) -> Report:
        """Prepares and runs the sync, and returns its report. ``stack`` closes what was opened.
        Raises as :func:`~penstock.engine.run.start.run_pipeline`."""
        announce_driver()
        lease = self._acquire(stack)
        pulse = stack.enter_context(LeaseHeartbeat(self._store, lease, self._cancel))
        stack.enter_context(StopBound(self._cancel, kill_java))
        self._store.verify(self._pipeline.pipeline)
        log = FileLog(self._home.log_folder(self._pipeline.pipeline, self._pipeline.log))
        log.belong_to(lease.state_id)
        self._configs = ConnectorConfigs(self._store, lease)
        self._configs.recover(log.root, self._observer)
        placed = self._settle(lease, log)
        self._refuse_other_source(log)
        if not self._dry and self._served is None:
            self._spark.start_early(stack, pulse.check)
        prepared = self._prepare(
            stack, lease, pulse, log, full_refresh=full_refresh and not recreate, recreate=recreate
        )
        pulse.check()
        refuse_moved(self._pipeline, self._store, self._home, prepared.plan.streams)
        for text in found_tables(self._pipeline, self._store, prepared.plan.streams):
            self._accounting.note(text)
        self._accounting.expect(s.id for s in prepared.plan.streams)
        self._refuse_unfit(prepared, recreate=recreate)
        if self._dry:
            return self._execute_dry(
                stack, prepared, pulse, log, full_refresh=full_refresh, recreate=recreate
            )
        self._remember(prepared, placed, lease)
        self._end_keys(lease, log)
        self._reset(prepared, lease, full_refresh=full_refresh, recreate=recreate)
        self._note_twice(log)
        for note in (*prepared.plan.notes, *prepared.effective_limits()[1]):
            self._accounting.note(note)
        run_log = self._run_log(stack, prepared)
        self._store.start_run(lease, self.id, self._started_at)
        self.begun = True
        report = self._reported(stack, prepared, lease, log, pulse, run_log)
        if report.exit_code:
            count_sealed(report, self._store, log)
        self._spark.worked = report.exit_code == 0
        try:
            self.write_report(report)
        finally:
            self._finish(lease, report)
        if self._pipeline.keep is not None:
            self._end_old_runs(lease, log, self._pipeline.keep)
        return report

    def _settle(self, lease: Lease, log: FileLog) -> SettledPlace:
        """Settles what earlier runs and another place may have left, before anything is prepared;
        notes it."""
        if not self._dry:
            note = settle_log(self._store, lease, log, self._home.path, self.id)
            if note is not None:
                self._accounting.note(note)
        env_note = new_names_note(self._pipeline, self._store, lease, keep=not self._dry)
        if env_note is not None:
            self._accounting.note(env_note)
        placed = settle_place(self._pipeline, self._store, self._home)
        self._pipeline = placed.pipeline
        for text in placed.notes:
            self._accounting.note(text)
        return placed

    def _refuse_unfit(self, prepared: Prepared, *, recreate: bool) -> None:
        """Raises ``ConfigError`` where what was requested does not go with this source or
        destination."""
        if recreate and not prepared.destination.has_tables:
            raise ConfigError(
                "--recreate replaces tables: this destination is a connector",
                code="config.recreate",
                hint="use --full-refresh, with overwrite if it can",
            )
        if self._asked_retry is not None and not prepared.destination.has_tables:
            raise _no_table()
        if self._dry and self._asked_retry is None:
            _refuse_consuming(prepared)
        if prepared.destination.has_tables and self._served is None and self._asked_retry is None:
            self._refuse_others(prepared)

    def _refuse_others(self, prepared: Prepared) -> None:
        """Raises ``ConfigError`` (``config.other_pipeline``); notes it where ``--yes`` was given or
        nothing is written."""
        error = replaced_rows(
            self._pipeline, self._store, self._home, prepared.plan.streams,
            prepared.destination.place.location,
        )  # fmt: skip
        if error is not None and not (self._yes or self._dry):
            raise error
        if error is not None:
            self._accounting.note(error.message)

    def _remember(self, prepared: Prepared, placed: SettledPlace, lease: Lease) -> None:
        """Saves what later runs must know of this one's plan."""
        if self._asked_retry is not None:
            leave_unread(prepared, self._store, lease)
        remember(prepared, self._store, lease)
        store_place(placed, self._store, lease, prepared.plan.streams)
        if self._served is None and has_file(self._pipeline):
            self._store.remember(lease, Remembered(file=used_file(self._pipeline)))

    def _reset(
        self, prepared: Prepared, lease: Lease, *, full_refresh: bool, recreate: bool
    ) -> None:
        """Gives up the states that this run must not continue from."""
        if recreate:
            ask_for_refresh(self._store, lease, prepared, self.id, self._started_at)
        elif full_refresh:
            prepared.anew = True
            reset_states(self._store, lease, prepared, self._accounting.note)
        elif prepared.plan.open and not prepared.served and self._asked_retry is None:
            reset_overwritten(self._store, lease, prepared, self._accounting.note)

    def _note_twice(self, log: FileLog) -> None:
        with suppress(LogError):  # the sync reports a damaged log
            for stream, rows in come_twice(self._store, self._pipeline.pipeline, log).items():
                self._accounting.note(
                    f"{stream}: {counted(rows, 'row')} that an earlier run had sealed came too,"
                    " although its state was changed since: append has them twice if the source"
                    " sends them again (`penstock state reset --sealed` before a run gives such"
                    " rows up)"
                )

    def _end_old_runs(self, lease: Lease, log: FileLog, seconds: float) -> None:
        """Deletes logs and reports of past runs. This run's work is complete, whether or not this
        succeeds."""
        with suppress(LeaseLost):  # already an error in the report
            try:
                end_old_runs(self._store, lease, self._home, log, seconds, datetime.now(UTC))
            except (StateError, LogError, Cancelled) as e:
                self._warn(f"old runs were not removed by `keep`: {e.message}")

    def _finish(self, lease: Lease, report: Report) -> None:
        """Stores the report. The run's work is complete, whether or not this succeeds."""
        try:
            self._store.finish_run(lease, self.id, msgspec.to_builtins(report))
        except LeaseLost:
            pass  # already an error in the report
        except (StateError, Cancelled) as e:
            self._warn(f"the store does not have this run's report: {e.message}")

    def _release(self, lease: Lease) -> None:
        """Releases the lease. If that fails, the next run takes it over."""
        try:
            self._store.release(lease)
        except (StateError, Cancelled) as e:
            self._warn(
                "the lease of the pipeline was not released, and the next run takes it over: "
                f"{e.message}"
            )

    def _warn(self, text: str) -> None:
        self._shown.log("WARN", "penstock", text)

    def _refuse_other_source(self, log: FileLog) -> None:
        """Refuses another source than that of the saved state, before it is started. Input of
        ``penstock serve`` gets no state, and so is not checked."""
        if self._served is not None:
            return
        name, source = self._pipeline.pipeline, self._pipeline.source

        def sealed() -> bool:
            """Whether an earlier run sealed a state that this run would save first (L5)."""
            with suppress(LogError):
                return bool(self._sealed(log, self._store.floors(name).get(None, 0)))
            return True

        ref = source_reference(self._pipeline)
        here = running_folder(source)
        refuse_other_source(self._store, name, ref, source.same_as, sealed, here=here)

    @staticmethod
    def _sealed(log: FileLog, after: int) -> list[StoredState]:
        """Returns the states that earlier runs sealed since epoch ``after``, and that this run
        saves before it reads. Raises ``LogError``."""
        return [
            StoredState(s.scope, s.state)
            for s in log.segments()
            if s.scope is not None and s.state is not None and s.id.epoch > after
        ]

    def _sealed_states(self, log: FileLog) -> list[StoredState]:
        """Returns :meth:`_sealed` since the last reset of any stream; nothing for a damaged log,
        which the sync reports."""
        floors = self._store.floors(self._pipeline.pipeline)
        with suppress(LogError):
            return self._sealed(log, max(floors.values(), default=0))
        return []

    def _end_keys(self, lease: Lease, log: FileLog) -> None:
        """Drops connector keys of earlier runs that no sealed checkpoint covers, before any reset.
        Skips a damaged log, which the sync reports."""
        with suppress(LogError):
            self._store.end_keys(lease, covered(log.segments()))

    def _prepare(
        self,
        stack: ExitStack,
        lease: Lease,
        pulse: LeaseHeartbeat,
        log: FileLog,
        *,
        full_refresh: bool,
        recreate: bool,
    ) -> Prepared:
        source = self._source(lease)
        pulse.check()
        destination = destination_of(
            self._pipeline, self._home, self._store, self._observer,
            save=lambda new: self._configs.save(DESTINATION, new),
        )  # fmt: skip
        pulse.check()
        place = destination.place
        source.may_open(
            lambda own: self._spark.open(stack, place.needs().also(own), 1, pulse.check),
            log.root / "snapshots",
            self._model,
        )
        installed = source.install_seconds + destination.install_seconds
        self._accounting.time.install = round(installed, 3)
        transforms = transforms_of(self._pipeline, self._home, self._store, self._observer)
        prepared = prepare(
            self._pipeline,
            source,
            destination,
            self._store,
            transforms,
            first=self._refresh or self._dry or full_refresh or recreate,
            recovers=not (self._dry or full_refresh) and _has_sealed(log),
            stateless=full_refresh or self._served is not None,
            recreate=recreate,
            ends_histories=self._yes,
            sealed=self._sealed_states(log),
        )
        return self._with_ends(prepared)

    def _with_ends(self, prepared: Prepared) -> Prepared:
        """Adds where connectors keep their own keys, and what ``penstock serve`` provides."""
        if any(spec_of(e.connector.launch().protocol).keeps_keys for e in prepared.endpoints()):
            url = keys_url(self._home.state_url(self._pipeline.state))
            prepared.keys = KeysAt(url=url, pipeline=self._pipeline.pipeline, dry=self._dry)
        if self._served is not None:
            prepared.served = True
            prepared.requires_complete_status = self._served.refreshes().keys()
            prepared.plan = self._served.settled(prepared.plan, prepared.rules.earlier)
            self._accounting.at_least_once = True  # the host may send records again
        return prepared

    def _source(self, lease: Lease) -> SourceEndpoint:
        if self._served is not None:
            return self._served.source(self._pipeline, self._store, self._observer)
        return source_of(
            self._pipeline, self._home, self._store, self._observer,
            save=lambda new: self._configs.save(SOURCE, new),
        )  # fmt: skip

    def _reported(
        self,
        stack: ExitStack,
        prepared: Prepared,
        lease: Lease,
        log: FileLog,
        pulse: LeaseHeartbeat,
        run_log: RunLog,
    ) -> Report:
        """Runs the sync; returns a report whatever happens."""
        try:
            return self._sync(stack, prepared, lease, log, pulse, run_log)
        except PenstockError as e:
            return self._failed(e, run_log)
        except Exception as e:  # a dead JVM shows as OSError too: its socket is closed
            failure = self._death(DEATH_SECONDS) or _outside(e)
            if failure is not None:
                return self._failed(failure, run_log)
            run_log.write("DEBUG", "".join(traceback.format_exception(e)))
            return self._failed(defect(e, _masker(prepared)), run_log)

    def _death(self, seconds: float = 0.0) -> PenstockError | None:
        """Returns the error of an ended Java process of Spark, see ``java_died``: the user's stop,
        if Java was killed to end the run."""
        death = java_died(seconds)
        return death if death is None or not self._cancel.is_set() else stopped()

    def _failed(self, error: PenstockError, run_log: RunLog) -> Report:
        return self._report(SyncOutcome(complete=set(), failed={}, errors=[]), [error], run_log)

    def _acquire(self, stack: ExitStack) -> Lease:
        lease = take_lease(
            self._store,
            self._pipeline,
            self._home,
            this_holder(self.id, self._started_at),
            waiting=lambda text: self._observer.phase("wait", text),
            took=self._accounting.note,
            stopped=self._cancel.wait,
        )
        stack.callback(self._release, lease)
        return lease

    # -- the sync

    def _sync(
        self,
        stack: ExitStack,
        prepared: Prepared,
        lease: Lease,
        log: FileLog,
        pulse: LeaseHeartbeat,
        run_log: RunLog,
    ) -> Report:
        needs, lanes = prepared.destination.place.needs(), prepared.plan.lanes
        spark = self._spark.session or self._spark.open(stack, needs, lanes, pulse.check)
        served = self._served
        echo = None if served is None else served.echo(self._store, lease)

        def built(prepared: Prepared, name: str) -> BuiltSync:
            mailbox = Mailbox(log.root, name, self._configs.mail_key())
            pulse.beat(mailbox)
            monitor = RunMonitor(
                self._accounting, pulse, run_log, mailbox, self._observer,
                prepared.destination.place, echo, java_died,
            )  # fmt: skip
            folder = self._folder / "rejects"
            keys = rejected_keys(prepared, log.root)
            tried = tried_in(self._store, lease, self.id)
            rejects = RejectsKeeper(log.root, folder, monitor.note, keys, tried=tried)
            repeated = self._repeated_rejects(log, log)
            session = SyncSession(
                lease, self._store, log, prepared.states, rejects, repeated, monitor
            )
            parts = RunParts(prepared, session, mailbox, monitor, self._configs.save, self._limit)
            retry = self._retries(prepared, log, mailbox)
            sync = parts.sync(spark, self._discovery(prepared), retry)
            return BuiltSync(prepared, sync, monitor, mailbox)

        return self._run_sync(
            built(prepared, self.id),
            run_log,
            lambda: built(self._prepared_again(prepared, lease), f"{self.id}-2"),
        )

    def _repeated_rejects(self, log: FileLog, real: FileLog) -> RepeatedRejects:
        """``log``: the run seals into it; ``real``: the pipeline's."""

        def earlier() -> EarlierRejects:
            name = self._pipeline.pipeline
            folders = earlier_reject_folders(self._store, self._home, name, self.id)
            return EarlierRejects(real.root, folders, self._store.floors(name))

        return RepeatedRejects(log.root, earlier)

    def _retries(self, prepared: Prepared, log: FileLog, mailbox: Mailbox) -> RejectRetry | None:
        """Returns the retry of rejects, if requested. ``log``: of the pipeline. ``mailbox``: its
        folder is where the lane finds the rejects."""
        if self._asked_retry is not None:
            self._retry = RejectRetry(
                self._asked_retry, self._home, self._store, self._pipeline.pipeline,
                log, mailbox.folder, prepared.source.package.deleted_at_field,
                self._accounting.plan_again,
            )  # fmt: skip
        return self._retry

    def _discovery(self, prepared: Prepared) -> Discovery:
        source = prepared.source
        if not source.kept:
            return DiscoveryDone(source.given())
        return CatalogCheck(
            source, lambda begin, end: self.timeline.add(DISCOVER, begin, end, track=DISCOVER)
        )

    def _prepared_again(self, before: Prepared, lease: Lease) -> Prepared:
        """Prepares the run again with the catalog that was discovered during the read, because it
        gives other streams to the source than the kept one."""
        self._accounting.note(
            "the source's catalogue has changed since the last run: rows read with the old one "
            "were discarded and read again with the new one"
        )
        prepared = prepare(
            self._pipeline, before.source, before.destination, self._store, before.transforms,
            ends_histories=self._yes,
        )  # fmt: skip
        prepared = self._with_ends(prepared)
        self._accounting.plan_again(s.id for s in prepared.plan.streams)
        remember(prepared, self._store, lease)
        for note in prepared.plan.notes:
            self._accounting.note(note)
        return prepared

    def _place(self, prepared: Prepared) -> None:
        for stream in prepared.plan.streams:
            self._accounting.place(stream, prepared.destination.place)
        if self._telemetry is not None:
            self._telemetry.planned(self.id, self._accounting.planned, self._accounting.places())

    def _run_sync(
        self,
        built: BuiltSync,
        run_log: RunLog,
        again: Callable[[], BuiltSync] | None = None,
    ) -> Report:
        """Runs the sync. ``again``: builds the sync with the catalog that was discovered during the
        first one."""
        errors: list[PenstockError] = []
        mailboxes, monitor = [built.mailbox], built.monitor
        self._place(built.prepared)
        self.timeline.add(PREPARE, self.timeline.began)
        if built.prepared.source.discovered is not None:
            self.timeline.add(DISCOVER, *built.prepared.source.discovered)
        try:
            outcome = built.sync.run()
            if outcome.changed and again is not None:
                monitor.finish(outcome)
                built = again()
                monitor = built.monitor
                mailboxes.append(built.mailbox)
                self._place(built.prepared)
                outcome = built.sync.run()
            prepared = built.prepared
            ended_well = not (outcome.errors or outcome.failed or outcome.halted)
            if ended_well and not outcome.cancelled and self._retry is None:
                outcome.errors += self._never_came(prepared)
            monitor.finish(outcome)
            for mailbox in mailboxes:
                mailbox.remove()
            self._note_refreshes(prepared)
        except PenstockError as e:
            ours = isinstance(e, LeaseLost | Cancelled)
            errors.append(e if ours else self._death() or e)
            outcome = SyncOutcome(complete=set(), failed={}, errors=[])
            monitor.finish(outcome)
        for error in (*errors, *outcome.errors, *outcome.failed.values()):
            _mend(error, built.prepared)
        return self._report(outcome, errors, run_log)

    def _note_refreshes(self, prepared: Prepared) -> None:
        """Adds a note for each stream whose refresh this run has not completed."""
        name = self._pipeline.pipeline
        planned = {s.id for s in prepared.plan.streams if s.configured.refreshes}
        pending = self._store.remembered(name, planned).pending_refreshes if planned else {}
        for stream in sorted(pending):
            self._accounting.note(
                f"stream {stream}: its refresh is not complete, so its table and its state are as"
                f" they were: the next run goes on with it, and `penstock state reset {name}"
                f" --cancel-refresh {stream}` ends it"
            )

    def _never_came(self, prepared: Prepared) -> list[ConfigError]:
        """Returns an error for each stream that the user named and that the source, which reveals
        its streams only while it is read, has never sent, though it sent others in this run."""
        sent = {s.id for s in prepared.plan.streams} | prepared.passed
        if not prepared.plan.open or prepared.served or not sent:
            return []
        known = sent | self._store.known_streams(self._pipeline.pipeline)
        known |= prepared.rules.earlier.passed_over
        return [
            ConfigError(
                f"the source does not list the stream {entry.name!r}, which the pipeline names",
                code="config.unknown_stream",
                stream=entry.name,
                hint=hint(entry.name, sorted(map(str, sent)), "it showed"),
            )
            for entry in self._pipeline.source.streams or ()
            if not entry.is_pattern and not any(map(entry.matches, known))
        ]

    def _report(self, outcome: SyncOutcome, errors: list[PenstockError], run_log: RunLog) -> Report:
        for error in (*errors, *outcome.errors, *outcome.failed.values()):
            self._commands.error(error)
        report = self._accounting.report(
            run=self.id,
            pipeline=self._pipeline.pipeline,
            started_at=self._started_at,
            seconds=time.monotonic() - self.timeline.began,
            outcome=outcome,
            log=str(run_log.path),
            errors=errors,
            jvm_peak_bytes=jvm_peak(),
        )
        if self._retry is not None:
            self._retry.add_to(report)
        report.time.wall = round(time.monotonic() - self._began, 3)
        self._reported_at = time.monotonic()
        for error in (*outcome.errors, *errors):
            run_log.write("ERROR", bounded(error.message))
        return report

    def _run_log(self, stack: ExitStack, prepared: Prepared) -> RunLog:
        run_log = RunLog(self._folder / RUN_LOG, self._shown, _masker(prepared))
        self._observer.begins(run_log)
        stack.callback(run_log.close)
        return run_log

    # -- around it

    def _execute_dry(
        self,
        stack: ExitStack,
        prepared: Prepared,
        pulse: LeaseHeartbeat,
        real: FileLog,
        *,
        full_refresh: bool,
        recreate: bool,
    ) -> Report:
        """Reads and decodes into a log that is deleted at the end; no Spark, no table, no state.
        ``real``: the pipeline's log."""
        scratch = Path(tempfile.mkdtemp(prefix="penstock-dry-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        store = MemoryStore()
        lease = store.acquire(self._pipeline.pipeline, this_holder(self.id), LEASE_TTL)
        remember(prepared, store, lease)
        store.replace_states(lease, self._store.states(self._pipeline.pipeline))
        store.remember(lease, Remembered(refresh=prepared.rules.earlier.refresh))
        if recreate:
            ask_for_refresh(store, lease, prepared, self.id, self._started_at)
        elif full_refresh:
            reset_states(store, lease, prepared, self._accounting.note)
        log = FileLog(scratch)
        mailbox = Mailbox(scratch, self.id, secrets.token_bytes(32))
        pulse.beat(mailbox)
        run_log = self._run_log(stack, prepared)
        self._accounting.dry = True
        self._accounting.note("nothing was written and no state was saved (dry run)")
        monitor = RunMonitor(
            self._accounting, pulse, run_log, mailbox, self._observer, prepared.destination.place
        )
        rejects = RejectsKeeper(log.root, None, monitor.note)
        repeated = self._repeated_rejects(log, real)
        session = SyncSession(lease, store, log, prepared.states, rejects, repeated, monitor)
        save = self._configs.save
        parts = RunParts(prepared, session, mailbox, monitor, save, self._limit)
        sync = parts.sync(None, retry=self._retries(prepared, real, mailbox))
        return self._run_sync(BuiltSync(prepared, sync, monitor, mailbox), run_log)

    def closed(self, report: Report) -> None:
        """Adds the seconds since the report was made, spent on closing, to the report."""
        now = time.monotonic()
        report.time.close = round(now - self._reported_at, 3)
        report.time.wall = round(now - self._began, 3)

    def send_telemetry(self, telemetry: Telemetry, report: Report) -> list[str]:
        """Sends the ended run. Returns the problems, one sentence each."""
        done = self._accounting
        return telemetry.ended(report, self.timeline, done.planned, done.lived)

    def write_report(self, report: Report) -> None:
        """Writes the report into the run's folder."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = msgspec.json.format(msgspec.json.encode(report), indent=2)
        replace(self._folder / "report.json", body)


def _has_sealed(log: FileLog) -> bool:
    """Whether an earlier run sealed rows that are not delivered yet. The sync reports a damaged
    log."""
    with suppress(LogError):
        return bool(log.segments())
    return True


def _mend(error: PenstockError, prepared: Prepared) -> None:
    """Adds the repairing hint to the error of a connector that a moved dependency broke."""
    kinds = {SOURCE: SourceError, DESTINATION: DestinationError}
    for end in prepared.endpoints():
        if isinstance(error, kinds.get(end.role_name, ())):
            error.hint = end.connector.mending(error.message) or error.hint


def _masker(prepared: Prepared) -> Masker:
    return Masker([secret for end in prepared.endpoints() for secret in end.secrets()])


def _outside(error: Exception) -> PenstockError | None:
    """Returns the error of a failure in Java or in the machine; None: it is Penstock's own."""
    if (failure := silent(error) or not_ours(error)) is not None:
        return failure
    if isinstance(error, OSError):
        return LogError(
            f"a file could not be read or written: {error}",
            code="log.io",
            hint="see that this user may write the home and the log's folder, then run again",
        )
    return None


def defect(error: Exception, masker: Masker, trace: str = "in this run's log") -> Defect:
    """Returns the error that is reported for a failure of our own code: the exception's text,
    masked. ``trace``: where the user finds the trace."""
    kind = type(error).__name__
    return Defect(
        masker.mask(f"Penstock failed unexpectedly: {kind}: {error}".rstrip(": ")),
        code=f"defect.{kind}",
        hint=f"this is a bug in Penstock: please report it with the trace {trace}",
    )


def _refuse_consuming(prepared: Prepared) -> None:
    """Refuses a dry run of cdc: it would take changes from the source and discard them."""
    taken = [str(s.id) for s in prepared.plan.streams if s.configured.sync_mode is SyncMode.cdc]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)}: a cdc read removes changes at the source, so it cannot be tried",
            code="config.cdc",
            hint="try it with sync_mode full_refresh, or run it for good",
        )


def _no_table() -> ConfigError:
    return ConfigError(
        "the destination is a connector, which does not show its row of a key: a rejected row "
        "that is sent now could replace a later one",
        code="config.retry",
        hint="a model can send its rejected rows again: retry_rejected (docs/reverse-etl.md)",
    )

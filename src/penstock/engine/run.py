"""A run from a pipeline to its report: opens what a sync needs, runs it, closes everything.

The order matters: whatever needs no Java comes first (installing, spec, validation, the lease,
discover, plan), so that a wrong configuration fails in a second. Neighbours: ``cli`` calls the
functions here; ``engine.preparation`` comes before the first record, ``engine.sync`` after it.
"""

import os
import secrets
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.engine.assembly import Assembly
from penstock.engine.contract import Outcome
from penstock.engine.ends import DESTINATION, SOURCE, Destination, Source, source_of
from penstock.engine.failpoints import announce_driver
from penstock.engine.job import KeysAt
from penstock.engine.keepalive import LEASE_TTL, Pulse
from penstock.engine.log import FileLog
from penstock.engine.mailbox import Mailbox, NewConfig
from penstock.engine.pending import covered
from penstock.engine.preparation import (
    Prepared,
    destination_of,
    prepare,
    remember,
)
from penstock.engine.progress import RunObserver
from penstock.engine.report import Accounting
from penstock.engine.runlog import RunLog
from penstock.engine.serve import Echo, Say, Served, input_pipe, refuse_remote
from penstock.engine.sync import Sync
from penstock.engine.transform_end import transforms_of
from penstock.engine.watch import Watch
from penstock.errors import ConfigError, Defect, LeaseLost, LogError, PenstockError
from penstock.model.catalog import Catalog, StreamId, SyncMode
from penstock.model.report import Report
from penstock.runtimes.masking import Masker
from penstock.state.contract import Lease, Reset, Store
from penstock.state.holder import this_holder
from penstock.state.keys_store import keys_url
from penstock.state.memory import MemoryStore
from penstock.state.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_cancel = threading.Event()
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def request_cancel() -> None:
    """Stop the run of this process at its next step (Ctrl-C, SIGTERM)."""
    _cancel.set()


def new_run_id() -> str:
    """A ULID: 48 bits of time, 80 of chance, so that runs sort by their start."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def run_pipeline(
    pipeline: Pipeline,
    home: Home,
    *,
    observer: RunObserver,
    dry_run: bool = False,
    limit: int | None = None,
    full_refresh: bool = False,
) -> Report:
    """One sync. Raises ``PenstockError`` for what is wrong before it begins (configuration, a
    locked pipeline, a source that does not answer); what happens later is in the report.
    ``dry_run`` and ``limit`` read and decode, and keep nothing."""
    with ExitStack() as stack:
        store = open_store(home.state_url(pipeline.state))
        stack.callback(store.close)
        stack.callback(_cancel.clear)
        run = Run(pipeline, home, store, observer, dry=dry_run or limit is not None, limit=limit)
        return run.execute(stack, full_refresh=full_refresh)


def serve_input(
    pipeline: Pipeline,
    home: Home,
    *,
    observer: RunObserver,
    protocol: str,
    catalog: Catalog,
    say: Say,
    refreshes: Mapping[StreamId, int] | None = None,
) -> Report:
    """One sync of what comes on our stdin, see ``engine.serve``. Raises as ``run_pipeline``."""
    refuse_remote(pipeline)
    with ExitStack() as stack:
        store = open_store(home.state_url(pipeline.state))
        stack.callback(store.close)
        stack.callback(_cancel.clear)

        def broke(error: OSError) -> None:
            observer.log("ERROR", "penstock", f"the input cannot be read any more: {error}")
            request_cancel()

        pipe = stack.enter_context(input_pipe(broke))
        served = Served(
            protocol=protocol, catalog=catalog, say=say, pipe=pipe, refreshes=refreshes or {}
        )
        run = Run(pipeline, home, store, observer, dry=False, limit=None, served=served)
        return run.execute(stack, full_refresh=False)


class Run:
    """One run's life; :meth:`execute` once."""

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        store: Store,
        observer: RunObserver,
        *,
        dry: bool,
        limit: int | None,
        served: Served | None = None,
    ) -> None:
        self._pipeline, self._home, self._store, self._observer = pipeline, home, store, observer
        self._dry, self._limit, self._served = dry, limit, served
        self.id = new_run_id()
        self._began = time.monotonic()
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._folder = home.run(self.id)
        self._accounting = Accounting(observer)

    def execute(self, stack: ExitStack, *, full_refresh: bool) -> Report:
        announce_driver()
        lease = self._acquire(stack)
        pulse = stack.enter_context(Pulse(self._store, lease, _cancel))
        log = FileLog(_log_folder(self._home, self._pipeline))
        log.belong_to(lease.state_id)
        self._leftover_configs(lease, log)
        prepared = self._prepare(lease, pulse)
        pulse.check()
        self._accounting.expect(s.id for s in prepared.plan.streams)
        if self._dry:
            _refuse_consuming(prepared)
            return self._execute_dry(stack, prepared, lease, pulse)
        remember(prepared, self._store, lease)
        self._end_keys(lease, log)
        if full_refresh:
            self._forget_states(lease, prepared)
        for note in (*prepared.plan.notes, *prepared.held()[1]):
            self._accounting.note(note)
        run_log = self._run_log(stack, prepared)
        self._store.start_run(lease, self.id, self._started_at)
        report = self._reported(stack, prepared, lease, log, pulse, run_log)
        try:
            self._write_report(report)
        finally:
            with suppress(LeaseLost):  # which the report says already
                self._store.finish_run(lease, self.id, msgspec.to_builtins(report))
        return report

    def _end_keys(self, lease: Lease, log: FileLog) -> None:
        """Of earlier runs, before any reset. A log that cannot be read is told by the sync."""
        with suppress(LogError):
            self._store.end_keys(lease, covered(log.segments()))

    def _prepare(self, lease: Lease, pulse: Pulse) -> Prepared:
        source = self._source(lease)
        pulse.check()
        place = destination_of(
            self._pipeline, self._home, self._store, self._observer,
            save=lambda new: self._save_config(lease, DESTINATION, new),
        )  # fmt: skip
        pulse.check()
        installed = place.install_seconds if isinstance(place, Destination) else 0.0
        self._accounting.time.install = round(source.install_seconds + installed, 3)
        transforms = transforms_of(self._pipeline, self._home, self._store, self._observer)
        prepared = prepare(self._pipeline, source, place, self._store, transforms)
        if any(end.connector.launch().component is not None for end in prepared.ends()):
            url = keys_url(self._home.state_url(self._pipeline.state))
            prepared.keys = KeysAt(url=url, pipeline=self._pipeline.pipeline, dry=self._dry)
        if self._served is not None:
            prepared.served, prepared.must_say = True, self._served.refreshes.keys()
            names = self._store.names(self._pipeline.pipeline)
            prepared.plan = self._served.settled(prepared.plan, names)
            self._accounting.at_least_once = True  # whoever feeds us may repeat
        return prepared

    def _source(self, lease: Lease) -> Source:
        if self._served is not None:
            return self._served.source(self._pipeline, self._store, self._observer)
        return source_of(
            self._pipeline, self._home, self._store, self._observer,
            save=lambda new: self._save_config(lease, SOURCE, new),
        )  # fmt: skip

    def _reported(
        self,
        stack: ExitStack,
        prepared: Prepared,
        lease: Lease,
        log: FileLog,
        pulse: Pulse,
        run_log: RunLog,
    ) -> Report:
        """A run that has begun ends with a report, whatever happens."""
        try:
            return self._sync(stack, prepared, lease, log, pulse, run_log)
        except PenstockError as e:
            return self._failed(e, run_log)
        except OSError as e:
            return self._failed(
                LogError(f"a file could not be written: {e}", code="log.io"), run_log
            )
        except Exception as e:
            run_log.write("DEBUG", "".join(traceback.format_exception(e)))
            return self._failed(_defect(e, _masker(prepared)), run_log)

    def _failed(self, error: PenstockError, run_log: RunLog) -> Report:
        return self._report(Outcome(complete=set(), failed={}, errors=[]), [error], run_log)

    def _acquire(self, stack: ExitStack) -> Lease:
        holder = this_holder(self.id, self._started_at)
        lease = self._store.acquire(self._pipeline.pipeline, holder, LEASE_TTL)
        stack.callback(self._store.release, lease)
        return lease

    # -- the sync

    def _sync(
        self,
        stack: ExitStack,
        prepared: Prepared,
        lease: Lease,
        log: FileLog,
        pulse: Pulse,
        run_log: RunLog,
    ) -> Report:
        mailbox = Mailbox(log.root, self.id)
        pulse.beat(mailbox)
        spark = self._open_session(stack, prepared)
        echo = None
        if self._served is not None:
            known = self._served.published(self._store, lease)
            echo = Echo(self._served.say, known)
        watch = Watch(self._accounting, pulse, run_log, mailbox, self._observer, echo)
        assembly = Assembly(
            self._pipeline, prepared, lease, self._store, log, mailbox, watch, self._accounting,
            run=self.id, rejects=self._folder / "rejects", limit=self._limit,
        )  # fmt: skip
        sync = assembly.sync(spark, lambda role, new: self._save_config(lease, role, new))
        return self._run_sync(prepared, sync, watch, run_log, mailbox)

    def _run_sync(
        self, prepared: Prepared, sync: Sync, watch: Watch, run_log: RunLog, mailbox: Mailbox
    ) -> Report:
        errors: list[PenstockError] = []
        for stream in prepared.plan.streams:
            self._accounting.place(stream, prepared.place)
        try:
            outcome = sync.run()
            watch.finish(outcome)
            mailbox.remove()
        except PenstockError as e:
            errors.append(e)
            outcome = Outcome(complete=set(), failed={}, errors=[])
            watch.finish(outcome)
        return self._report(outcome, errors, run_log)

    def _report(self, outcome: Outcome, errors: list[PenstockError], run_log: RunLog) -> Report:
        report = self._accounting.report(
            run=self.id,
            pipeline=self._pipeline.pipeline,
            started_at=self._started_at,
            seconds=time.monotonic() - self._began,
            outcome=outcome,
            log=str(run_log.path),
            errors=errors,
            jvm_peak_bytes=_jvm_peak(),
        )
        for error in (*outcome.errors, *errors):
            run_log.write("ERROR", error.message)
        return report

    def _run_log(self, stack: ExitStack, prepared: Prepared) -> RunLog:
        run_log = RunLog(self._folder / "log.jsonl", self._observer, _masker(prepared))
        stack.callback(run_log.close)
        return run_log

    def _open_session(self, stack: ExitStack, prepared: Prepared) -> "SparkSession":
        from penstock.spark.session import close_session, open_session

        self._observer.phase("start", "starting Spark")
        began = time.monotonic()
        spark = open_session(
            prepared.place.needs(),
            master=self._pipeline.spark.master,
            conf=self._pipeline.spark.conf,
            lanes=prepared.plan.lanes,
            scratch_dir=self._folder,
        )
        stack.callback(close_session, spark)
        self._accounting.time.start += round(time.monotonic() - began, 3)
        return spark

    # -- around it

    def _execute_dry(
        self, stack: ExitStack, prepared: Prepared, real: Lease, pulse: Pulse
    ) -> Report:
        """Read and decode into a log that is thrown away; no Spark, no table, no state."""
        scratch = Path(tempfile.mkdtemp(prefix="penstock-dry-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        store = MemoryStore()
        lease = store.acquire(self._pipeline.pipeline, this_holder(self.id), LEASE_TTL)
        remember(prepared, store, lease)
        store.replace_states(lease, self._store.states(self._pipeline.pipeline))
        log = FileLog(scratch)
        mailbox = Mailbox(scratch, self.id)
        pulse.beat(mailbox)
        run_log = self._run_log(stack, prepared)
        self._accounting.note("nothing was written and no state was saved (dry run)")
        watch = Watch(self._accounting, pulse, run_log, mailbox, self._observer)
        assembly = Assembly(
            self._pipeline, prepared, lease, store, log, mailbox, watch, self._accounting,
            run=self.id, rejects=None, limit=self._limit,
        )  # fmt: skip
        sync = assembly.sync(None, lambda role, new: self._save_config(real, role, new))
        return self._run_sync(prepared, sync, watch, run_log, mailbox)

    def _forget_states(self, lease: Lease, prepared: Prepared) -> None:
        """``--full-refresh``: the streams of this run start without state, those too that will be
        known only when they come."""
        package, name = prepared.source.package, self._pipeline.pipeline
        states = self._store.states(name)
        wanted = {s.id for s in prepared.plan.streams}
        if prepared.plan.open:
            before = self._store.known_streams(name)
            wanted |= {s for s in before if self._pipeline.wish(s) is not None}
        streams: list[StreamId] = sorted(wanted)
        reset = Reset(tuple(streams), lambda given: package.state.without(given, streams))
        self._store.replace_states(lease, reset.strip(states), reset)

    def _save_config(self, lease: Lease, role: str, new: NewConfig) -> None:
        """CONTROL: at once, whatever becomes of the run."""
        self._store.set_config_override(lease, role, new.base_hash, new.config)

    def _leftover_configs(self, lease: Lease, log: FileLog) -> None:
        """What a connector changed in a run whose driver died before it could be stored."""
        boxes = sorted((log.root / "mailbox").glob("*/")) if log.root.is_dir() else []
        for folder in boxes:
            mailbox = Mailbox(log.root, folder.name)
            pushes = Mailbox(log.root, f"{folder.name}/push")
            for role, box in ((SOURCE, mailbox), (DESTINATION, pushes)):
                for _, config in box.configs():
                    self._save_config(lease, role, config)
            mailbox.remove()

    def _write_report(self, report: Report) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / "report.json"
        fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(fd, "wb") as f:
            f.write(msgspec.json.format(msgspec.json.encode(report), indent=2))


def _masker(prepared: Prepared) -> Masker:
    return Masker([secret for end in prepared.ends() for secret in end.secrets()])


def _defect(error: Exception, masker: Masker) -> Defect:
    kind = type(error).__name__
    return Defect(
        masker.mask(f"Penstock failed where it should not: {kind}: {error}".rstrip(": ")),
        code=f"defect.{kind}",
        hint="this is a fault of ours: please report it with the trace in this run's log",
    )


def _refuse_consuming(prepared: Prepared) -> None:
    """A dry run would take changes from the source and throw them away."""
    taken = [str(s.id) for s in prepared.plan.streams if s.configured.sync_mode is SyncMode.cdc]
    if taken:
        raise ConfigError(
            f"{', '.join(taken)}: what cdc reads is gone at the source, so it cannot be tried",
            code="config.cdc",
            hint="try it with sync_mode full_refresh, or run it for good",
        )


def _log_folder(home: Home, pipeline: Pipeline) -> Path:
    place = home.log(pipeline.pipeline, pipeline.log)
    if "://" in place:
        raise ConfigError(
            f"log.path {place!r} is an object store: the log needs a folder so far",
            code="config.log",
            hint="give a folder that this machine and every Spark worker share",
        )
    return Path(place)


def _jvm_peak() -> int:
    from penstock.spark.session import jvm_peak_bytes

    return jvm_peak_bytes()

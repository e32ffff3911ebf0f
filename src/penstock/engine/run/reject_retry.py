"""Chooses the rejects that ``penstock rejects retry`` retries, and writes them for the lane that
reads them.

A reject is retried once, and never where that could double, replace or bring back a row:

* its bytes are the record as its source sent it, and nothing else was made of that record;
* no run gave it up: then its source sends it again by itself;
* its stream is read incrementally into a table, and the table's rows were not replaced since;
* under append its stream's state was not reset since, and it was not read in full;
* in a table that keeps one row per key, no row can have been removed or replaced by another key.
  Then the later row of its key is there, and a merge compares the two: the retried row counts as
  the older one (``tables.newest``).

All others stay rejects, and the report has the reason. Neighbours: ``engine.log.retries`` defines
the files, ``engine.sync.sync`` calls it once what earlier runs sealed is loaded,
``engine.worker.lane`` reads the files.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import StreamOptions
from penstock.engine.deliver.load_plan import visible
from penstock.engine.inspect.runs import reject_files, rejects_of, runs_with_rejects
from penstock.engine.log.log import FileLog
from penstock.engine.log.retries import (
    KeptReject,
    RetriedLine,
    given_up,
    given_up_folder,
    ids_sealed,
    ids_stored,
    ids_tried,
    stored_text,
)
from penstock.engine.plan.prepare import Prepared
from penstock.engine.specs.lane import RetriedFile
from penstock.engine.specs.observer import counted
from penstock.engine.specs.plan import PlannedStream
from penstock.files import private
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.report import LeftRejects, Report, RetriedRejectsReport
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered
from penstock.tasks.storage import storage

NOT_WHOLE = (
    "its bytes are not a record of its source: an invalid line, a row of typed columns "
    "(WebAssembly, Spark), a row that a transform made; or an earlier version of Penstock "
    "rejected it"
)
SENT_AGAIN = "the run that rejected it saved no state after it: the source sends it again"
REPLACED = "the rows of its table were replaced since, or are being replaced"
RESET = "its stream's state was reset since: the source sends it again"
NOT_SYNCED = "the pipeline does not sync its stream now"
READ_IN_FULL = "its stream is read in full: the next run tries it again by itself"
WAS_READ_IN_FULL = (
    "its stream was read in full when it was rejected: the source sends it again with the rest"
)
QUERIED = "a query over the whole stream makes the rows of its table"
REMOVED = (
    "its table keeps one row per key and its source deletes rows: a removed row leaves no trace, so"
    " a later delete of its key may have been loaded"
)
OTHER_KEY = (
    "rows of its table were merged by another primary key: a later row of its key may have been"
    " replaced"
)
VERSIONS = "its table keeps every version of a key, and an older version cannot be inserted"
OTHER_MODE = "its table's mode takes no single rows"


class RetryRequest(msgspec.Struct, frozen=True):
    """A user's request for retries. ``run``: rejects of this run only; ``stream``: of this stream
    only."""

    run: str | None = None
    stream: StreamOptions | None = None


class RejectRetry:
    """Implements ``engine.sync.ports.RetriedRecords``. ``log``: of the pipeline. ``folder``: for
    the lane's files. ``deleted_at``: the property by which the source's protocol marks deletes.
    ``chosen``: called with the streams that have some."""

    def __init__(
        self,
        request: RetryRequest,
        home: Home,
        store: Store,
        pipeline: str,
        log: FileLog,
        folder: Path,
        deleted_at: str | None,
        chosen: Callable[[Collection[StreamId]], None],
    ) -> None:
        self._request, self._home, self._store, self._pipeline = request, home, store, pipeline
        self._log, self._folder, self._chosen = log, folder, chosen
        self._floors = store.floors(pipeline)
        self._generations = store.generations(pipeline)
        self._deleted_at, self._known = deleted_at, store.remembered(pipeline)
        self._never_of: dict[StreamId, str | None] = {}
        self._left: Counter[tuple[str, str]] = Counter()
        self._tried: Counter[StreamId] = Counter()
        self._files: tuple[RetriedFile, ...] = ()

    def choose(self, streams: Sequence[PlannedStream]) -> set[StreamId]:
        """Writes the files of the lane. Returns the streams whose rejects are retried. Raises
        ``LogError``."""
        planned = {s.id: s for s in streams}
        self._tried, self._left = Counter(), Counter()
        with ExitStack() as stack:
            files: dict[StreamId, IO[bytes]] = {}
            for reject, sent_again in self._open_rejects():
                line = reject.line
                stream = StreamId(line.namespace, line.name) if line.name is not None else None
                known = None if stream is None else planned.get(stream)
                why = self._why_not(reject, stream, known, sent_again=sent_again)
                if why is not None or stream is None:
                    self._left[line.stream or "", why or NOT_WHOLE] += 1
                    continue
                again = RetriedLine(reject.id, line.body, line.encoding, _millis(line.at))
                if stream not in files:
                    path = self._folder / f"retried-{len(files) + 1}.jsonl"
                    with storage(path, "write"):
                        files[stream] = stack.enter_context(private(path, "wb"))
                    self._files = (*self._files, RetriedFile(stream, str(path)))
                with storage(self._folder, "write to"):
                    files[stream].write(msgspec.json.encode(again) + b"\n")
                self._tried[stream] += 1
        self._chosen(files.keys())
        return set(files)

    def files(self) -> tuple[RetriedFile, ...]:
        """Returns the files that :meth:`choose` wrote."""
        return self._files

    def add_to(self, report: Report) -> None:
        """Adds to the report what was retried, and what was not and why."""
        left = [LeftRejects(s or None, why, n) for (s, why), n in sorted(self._left.items())]
        report.retried = RetriedRejectsReport(tried=sum(self._tried.values()), left=left)
        report.notes += [
            f"{each.stream or 'no stream'}: {counted(each.rejects, 'reject')} left: {each.why}"
            for each in left
        ]

    def _open_rejects(self) -> Iterator[tuple[KeptReject, bool]]:
        """Yields the rejects that were not retried yet, oldest first, each with whether a run gave
        it up. Raises ``LogError``."""
        runs = runs_with_rejects(self._store, self._pipeline, self._request.run)
        folders = {run: self._home.run(run) / "rejects" for run in runs}
        closed = self._store.closed_epochs(self._pipeline)
        tried = ids_sealed(self._log.root, visible(self._log.segments(), closed))
        tried |= ids_stored(self._known.tried.values()).keys()
        gone: dict[str, set[str]] = {}
        for folder in (given_up_folder(self._log.root), *folders.values()):
            tried |= ids_tried(folder)
            for file, streams in given_up(folder).items():
                gone.setdefault(file, set()).update(streams)
        wanted = [self._request.run] if self._request.run is not None else runs
        # two runs may have a copy of a file: the first one was killed before the log deleted it
        found = {path.name: (run, path) for run in wanted for path in reject_files(folders[run])}
        for name, (run, path) in sorted(found.items()):
            for reject in rejects_of(run, path):
                if reject.id not in tried and self._is_asked_for(reject):
                    yield reject, _key(reject) in gone.get(name, ())

    def _is_asked_for(self, reject: KeptReject) -> bool:
        stream, line = self._request.stream, reject.line
        if stream is None:
            return True
        return line.name is not None and stream.matches(StreamId(line.namespace, line.name))

    def _why_not(
        self,
        reject: KeptReject,
        stream: StreamId | None,
        planned: PlannedStream | None,
        *,
        sent_again: bool,
    ) -> str | None:
        """Returns why a reject is not retried; None: it is."""
        line = reject.line
        if stream is None or line.generation is None or line.file is not None:
            return NOT_WHOLE
        if sent_again:
            return SENT_AGAIN
        if planned is None:
            return NOT_SYNCED
        if stream not in self._never_of:
            self._never_of[stream] = _never(planned) or self._may_lack(planned)
        if (why := self._never_of[stream]) is not None:
            return why
        pending = self._known.pending_refreshes
        if line.generation != self._generations.get(stream, 0) or stream in pending:
            return REPLACED
        floor = max(self._floors.get(None, 0), self._floors.get(stream, 0))
        appends = planned.disposition.mode is DestinationSyncMode.append
        if appends and int(reject.file.partition("-")[0]) <= floor:
            return RESET
        if appends and line.full:
            return WAS_READ_IN_FULL
        return None

    def _may_lack(self, planned: PlannedStream) -> str | None:
        """Returns why a keyed table may lack the later row of a key, by what was loaded before;
        None: it has it."""
        if planned.disposition.mode is not DestinationSyncMode.append_dedup:
            return None
        schemas = self._store.schemas(self._pipeline, planned.id).values()
        if any(f.source == self._deleted_at for schema in schemas for f in schema.fields):
            return REMOVED
        # rows that another key merged have one value of this key only if it is part of that one
        key = {*planned.configured.primary_key}
        merged_by = self._known.keys.get(planned.id, frozenset())
        return None if all(key <= {*other} for other in merged_by) else OTHER_KEY


def tried_in(store: Store, lease: Lease, run: str) -> Callable[[str, Sequence[str]], None]:
    """Returns a function that stores the ids of retried rejects under the name of their file: once,
    even if it is repeated."""

    def keep(name: str, ids: Sequence[str]) -> None:
        if name not in store.remembered(lease.pipeline, ()).tried:
            store.remember(lease, Remembered(tried={name: stored_text(run, ids)}))

    return keep


def leave_unread(prepared: Prepared, store: Store, lease: Lease) -> None:
    """Records that streams which no run has read, and which the saved state covers, are still
    unread: a retry stores its streams, and reads none of them."""
    known = store.remembered(lease.pipeline).unread
    left = {s: own for s, own in prepared.plan.unread.again.items() if s not in known}
    if left:
        store.remember(lease, Remembered(unread=left))


def _never(planned: PlannedStream) -> str | None:
    """Returns why no reject of a stream is retried; None: some may be."""
    if planned.configured.fills_generation:
        return READ_IN_FULL
    if planned.queried:
        return QUERIED
    mode = planned.disposition.mode
    if mode is DestinationSyncMode.append_dedup and planned.disposition.deleted_column is not None:
        return REMOVED
    if planned.disposition.history:
        return VERSIONS
    if mode not in (DestinationSyncMode.append, DestinationSyncMode.append_dedup):
        return OTHER_MODE
    return None


def _key(reject: KeptReject) -> str | None:
    line = reject.line
    return None if line.name is None else StreamId(line.namespace, line.name).key


def _millis(at: str) -> int:
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1000)
    except ValueError:
        return int(datetime.now(UTC).timestamp() * 1000)

"""Chooses the rejects that ``penstock rejects retry`` gives another try, and writes them for the
lane that reads them.

A reject is tried again once, and never where that could double, replace or bring back a row:

* its bytes are the record as its source sent it, and nothing else was made of that record;
* no run gave it up: then its source sends it again by itself;
* its stream is read incrementally into a table, and the table's rows were not replaced since;
* under append its stream's state was not reset since;
* in a table that keeps one row per key no row can have been removed. Its key's later row is there
  then, and a merge compares the two: the retried row counts as the older one (``tables.newest``).

All else stays a reject, and the report says why. Neighbours: ``engine.log.retries`` defines the
files, ``engine.sync.sync`` asks once what earlier runs sealed is loaded, ``engine.worker.lane``
reads the files.
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
    ids_sealed,
    ids_tried,
)
from penstock.engine.specs.lane import RetriedFile
from penstock.engine.specs.observer import counted
from penstock.engine.specs.plan import PlannedStream
from penstock.files import private
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.report import LeftRejects, Report, RetriedRejectsReport
from penstock.store.contract import Store
from penstock.tasks.storage import storage

NOT_WHOLE = (
    "its bytes are not a whole record of the source by itself, or an earlier version of Penstock"
    " rejected it"
)
SENT_AGAIN = "the run that rejected it saved no state behind it: the source sends it again"
REPLACED = "the rows of its table were replaced since, or are being replaced"
RESET = "its stream's state was reset since: the source sends it again"
NOT_SYNCED = "the pipeline does not sync its stream now"
READ_IN_FULL = "its stream is read in full: the next run tries it again by itself"
QUERIED = "a query over the whole stream makes the rows of its table"
REMOVED = (
    "its table keeps one row per key and its source deletes rows: a removed row leaves no trace, so"
    " a later delete of its key may have been loaded"
)
VERSIONS = "its table keeps every version of a key, and an older one has no place among them"
OTHER_MODE = "its table's mode takes no single rows"


class RetryRequest(msgspec.Struct, frozen=True):
    """What a user has tried again. ``run``: rejects of this run only; ``stream``: of this stream
    only."""

    run: str | None = None
    stream: StreamOptions | None = None


class RejectRetry:
    """Implements ``engine.sync.ports.RetriedRecords``. ``log``: of the pipeline. ``folder``: in
    which the lane's files are written. ``chosen``: is called with the streams that have some."""

    def __init__(
        self,
        request: RetryRequest,
        home: Home,
        store: Store,
        pipeline: str,
        log: FileLog,
        folder: Path,
        chosen: Callable[[Collection[StreamId]], None],
    ) -> None:
        self._request, self._home, self._store, self._pipeline = request, home, store, pipeline
        self._log, self._folder, self._chosen = log, folder, chosen
        self._floors = store.floors(pipeline)
        self._generations = store.generations(pipeline)
        self._pending = store.remembered(pipeline).pending_refreshes
        self._left: Counter[tuple[str, str]] = Counter()
        self._tried: Counter[StreamId] = Counter()
        self._files: tuple[RetriedFile, ...] = ()

    def choose(self, streams: Sequence[PlannedStream]) -> set[StreamId]:
        """Writes the files of the lane. Returns the streams of which rejects are tried again.
        Raises ``LogError``."""
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
        """The files that :meth:`choose` wrote."""
        return self._files

    def add_to(self, report: Report) -> None:
        """Adds to the report what was tried again, and what was left and why."""
        left = [LeftRejects(s or None, why, n) for (s, why), n in sorted(self._left.items())]
        report.retried = RetriedRejectsReport(tried=sum(self._tried.values()), left=left)
        report.notes += [
            f"{each.stream or 'no stream'}: {counted(each.rejects, 'reject')} left: {each.why}"
            for each in left
        ]

    def _open_rejects(self) -> Iterator[tuple[KeptReject, bool]]:
        """Yields the rejects that were not tried again, oldest first, each with whether a run gave
        it up. Raises ``LogError``."""
        runs = runs_with_rejects(self._store, self._pipeline, self._request.run)
        folders = {run: self._home.run(run) / "rejects" for run in runs}
        closed = self._store.closed_epochs(self._pipeline)
        tried = ids_sealed(self._log.root, visible(self._log.segments(), closed))
        gone: dict[str, set[str]] = {}
        for folder in folders.values():
            tried |= ids_tried(folder)
            for file, streams in given_up(folder).items():
                gone.setdefault(file, set()).update(streams)
        wanted = [self._request.run] if self._request.run is not None else runs
        found = [(path.name, run, path) for run in wanted for path in reject_files(folders[run])]
        for name, run, path in sorted(found):
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
        """Returns why a reject is not tried again; None: it is."""
        line = reject.line
        if stream is None or line.generation is None or line.file is not None:
            return NOT_WHOLE
        if sent_again:
            return SENT_AGAIN
        if planned is None:
            return NOT_SYNCED
        if (why := _never(planned)) is not None:
            return why
        if line.generation != self._generations.get(stream, 0) or stream in self._pending:
            return REPLACED
        floor = max(self._floors.get(None, 0), self._floors.get(stream, 0))
        appends = planned.disposition.mode is DestinationSyncMode.append
        if appends and int(reject.file.partition("-")[0]) <= floor:
            return RESET
        return None


def _never(planned: PlannedStream) -> str | None:
    """Returns why no reject of a stream is tried again; None: some may be."""
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

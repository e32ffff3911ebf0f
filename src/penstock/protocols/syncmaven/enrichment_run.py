"""Runs an enrichment over one stream: tables in, tables of answers out, in the rows' order.

Rows are cut into units. Several processes, each with its own thread, work on one unit at a time;
the answers are passed on in the order of the rows. A table is done once all its rows are answered;
a checkpoint of the connector's keys and of the cache goes with it. Not here: one process
(``enrichment_session``), rows (``enrichment_rows``), the lane
(``engine.worker.transforms.connector``). Source: the protocol page, Destination flow.
"""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import Defect, PenstockError
from penstock.model.events import LogEvent, Reject, SkippedItems, Tick
from penstock.model.types import RowSchema
from penstock.protocols.syncmaven.enrichment_cache import AnswerCache, Patch
from penstock.protocols.syncmaven.enrichment_rows import (
    EnrichedRows,
    Requests,
    UnansweredRow,
    patch_of,
)
from penstock.protocols.syncmaven.enrichment_session import AnswerAbandoned, EnrichmentSession
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import start_enrichment
from penstock.protocols.syncmaven.state_store import sync_id
from penstock.protocols.syncmaven.stream_keys import StreamKeys
from penstock.protocols.transforming import (
    EnrichmentUse,
    Given,
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import END
from penstock.runtimes.contract import Runtime

UNIT_ROWS = 64
UNIT_BYTES = 1 << 20  # of requests
EMIT_ROWS = 2048
_AHEAD_UNITS = 4  # for each process: finished units that wait for an earlier one
_TICK = 1.0
_IDLE = 0.2  # seconds between two reads of idle processes' output
_JOIN_SECONDS = 10.0

_NONE = RowSchema(())

Answers = list[list[Patch] | UnansweredRow]


@dataclass(slots=True)
class _Unit:
    """Rows ``begin`` to ``end`` of one table, number ``number`` in it."""

    number: int
    asked: Requests
    begin: int
    end: int


@dataclass(slots=True)
class _Counts:
    asked: int = 0
    kept: int = 0
    faulty: int = 0


class EnrichmentRun:
    """One run. ``by_page``: the connector described itself in the page's dialect."""

    def __init__(self, host: Host, request: TransformRequest, *, by_page: bool) -> None:
        self._host, self._request = host, request
        self._stream = request.stream.id
        self._how = request.enriching or EnrichmentUse(use="")
        self._by_page = by_page
        self._rows = EnrichedRows(request.given, request.made, self._how.columns)
        self._units: queue.Queue[_Unit] = queue.Queue()
        self._done: queue.Queue[tuple[_Unit, Answers] | LogEvent | SkippedItems | BaseException]
        self._done = queue.Queue()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._cache: AnswerCache | None = None
        self._counts = _Counts()
        self._lock = threading.Lock()

    def answers(self, feed: Iterator[object]) -> Iterator[Given]:
        """See ``TransformConversation.apply``."""
        keys = self._host.open_keys(self._stream, self._request.scope)
        try:
            yield from self._begin(keys)
            for upto, table in enumerate(feed, 1):
                yield from self._table(self._rows.requests(table))
                yield TransformProgress(upto, keys=0 if keys is None else keys.checkpoint())
            yield from self._metrics_and_logs()
            yield TransformProgress(END, keys=0 if keys is None else keys.checkpoint())
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(_JOIN_SECONDS)
            if keys is not None:
                keys.close()

    def _begin(self, keys: StreamKeys | None) -> Iterator[Given]:
        how = self._how
        if how.cache_seconds is not None and keys is not None:
            named = {f.name: f.source for f in (self._request.given or _NONE).fields}
            key = [named.get(p[0], p[0]) for p in self._request.stream.primary_key if p]
            self._cache = AnswerCache(keys.port, how, how.cache_key or tuple(key))
            if gone := self._cache.sweep():
                yield LogEvent("INFO", f"{gone} answers of the cache were too old and are deleted")
        environment = {} if keys is None else keys.environment()
        for number in range(how.processes):
            session = self._session(self._host.runtime(environment))
            thread = threading.Thread(
                target=self._work, args=(session,), name=f"enrichment-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _session(self, runtime: Runtime) -> EnrichmentSession:
        start = start_enrichment(
            by_page=self._by_page,
            credentials=self._request.config,
            options=self._how.options,
            sync_id=sync_id(self._how.pipeline, self._stream),
        )
        timeouts = self._request.timeouts
        return EnrichmentSession(runtime, timeouts, start, self._done.put, self._over.is_set)

    # -- tables, in the thread of the run

    def _table(self, asked: Requests) -> Iterator[Given]:
        waiting = _units(asked)
        most = len(self._threads) * (1 + _AHEAD_UNITS)
        done: dict[int, tuple[_Unit, Answers]] = {}
        put = emitted = 0
        while emitted < len(waiting):
            while put < len(waiting) and put - emitted < most:
                self._units.put(waiting[put])
                put += 1
            try:
                item = self._done.get(timeout=_TICK)
            except queue.Empty:
                yield Tick()
                continue
            match item:
                case BaseException():
                    raise item
                case LogEvent() | SkippedItems():
                    yield item
                    continue
                case (unit, answers):
                    done[unit.number] = (unit, answers)
            while emitted in done:
                begin, joined = done[emitted][0].begin, Answers()
                while emitted in done and len(joined) < EMIT_ROWS:
                    joined += done.pop(emitted)[1]
                    emitted += 1
                yield from self._emit(asked, begin, joined)

    def _emit(self, asked: Requests, begin: int, answers: Answers) -> Iterator[Given]:
        made = self._rows.made(asked, begin, answers)
        for fault in made.faults:
            self._forget(asked.rows[fault.index])
        if made.faults and self._how.on_error == "pass":
            # passed on unchanged, in their places
            faulty = {f.index for f in made.faults}
            whole = [[{}] if i in faulty else a for i, a in enumerate(answers, begin)]
            made = self._rows.made(asked, begin, whole)
            self._counts.faulty += len(faulty)
            yield SkippedItems("rows_not_enriched", len(faulty), self._stream)
        for fault in made.faults:
            self._counts.faulty += 1
            yield Reject(self._stream, fault.reason, asked.body(fault.index), fault.field)
        if made.table.num_rows:
            yield TransformedRows(made.table, made.table.nbytes)

    def _forget(self, row: dict[str, Any]) -> None:
        key = None if self._cache is None else self._cache.key(row)
        if self._cache is not None and key is not None:
            self._cache.drop(key)

    def _metrics_and_logs(self) -> Iterator[Given]:
        """Yields the last output of the processes, and the counts."""
        with_cache = "" if self._cache is None else f", {self._counts.kept} answered by the cache"
        while not self._done.empty():
            item = self._done.get()
            if isinstance(item, LogEvent | SkippedItems):
                yield item
        yield LogEvent(
            "INFO",
            f"{self._stream}: the enrichment got {self._counts.asked} rows{with_cache},"
            f" {self._counts.faulty} without an answer that fits",
        )

    # -- units, in a thread for each process

    def _work(self, session: EnrichmentSession) -> None:
        try:
            session.open()
            while not self._over.is_set():
                try:
                    unit = self._units.get(timeout=_IDLE)
                except queue.Empty:
                    session.listen()
                    continue
                self._done.put((unit, self._answered(session, unit)))
        except AnswerAbandoned:
            pass
        except PenstockError as e:
            self._done.put(e)
        except BaseException as e:  # the run must learn of any failure
            self._done.put(Defect(f"an enrichment's thread broke: {e!r}"))
        finally:
            session.close()

    def _answered(self, session: EnrichmentSession, unit: _Unit) -> Answers:
        asked, cache = unit.asked, self._cache
        answers: dict[int, list[Patch] | UnansweredRow] = {}
        keys: dict[int, str] = {}
        for index in range(unit.begin, unit.end):
            key = None if cache is None else cache.key(asked.rows[index])
            if cache is None or key is None:
                continue
            kept = cache.get(key)
            if kept is None:
                keys[index] = key
            else:
                answers[index] = kept
        missing = [i for i in range(unit.begin, unit.end) if i not in answers]
        found = session.ask([asked.lines[i] for i in missing], self._how.ahead)
        for index, answer in zip(missing, found, strict=True):
            if answer.fault is not None:
                answers[index] = UnansweredRow(index, f"the enrichment: {answer.fault}")
                continue
            rows = [patch_of(asked.rows[index], row, self._how.kept) for row in answer.rows]
            answers[index] = rows
            if cache is not None and index in keys:
                cache.put(keys[index], rows)
        with self._lock:
            self._counts.asked += len(missing)
            self._counts.kept += unit.end - unit.begin - len(missing)
        return [answers[i] for i in range(unit.begin, unit.end)]


def _units(asked: Requests) -> list[_Unit]:
    found: list[_Unit] = []
    begin = size = 0
    for index, line in enumerate(asked.lines):
        if index > begin and (index - begin == UNIT_ROWS or size + len(line) > UNIT_BYTES):
            found.append(_Unit(len(found), asked, begin, index))
            begin, size = index, 0
        size += len(line)
    if begin < len(asked.lines):
        found.append(_Unit(len(found), asked, begin, len(asked.lines)))
    return found

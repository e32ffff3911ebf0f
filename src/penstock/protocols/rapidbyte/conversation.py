"""One run of a connector on a thread of its own, and what it tells, in order, to whoever iterates.

The parts that the three roles share. The guest's thread opens, runs and closes; frames reach it
through an inbox that another thread fills, and leave it through an outbox; both are bounded in
bytes, so that a slow side holds the other back. Neighbours: ``source``, ``destination``,
``transform``; ``told`` (what is yielded).
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.protocols.rapidbyte.failures import explain, masked
from penstock.protocols.rapidbyte.host import Host, HostBounds, Outlet
from penstock.protocols.rapidbyte.lifecycle import BadAnswer, Loaded, Session
from penstock.protocols.rapidbyte.messages import (
    Fault,
    RunRequest,
    RunSummary,
    ValidationReport,
)
from penstock.protocols.rapidbyte.permissions import Effective, grants
from penstock.protocols.rapidbyte.pipe import Abandoned, End, Pipe, TooLong
from penstock.protocols.rapidbyte.records import Said
from penstock.protocols.rapidbyte.squeeze import Bytes, Codec, Squeezed, expand, squeeze
from penstock.protocols.rapidbyte.told import Ended, Frame, Logged, Quiet, Told
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.contract import Trap, TrapKind
from penstock.state.keys import KeyPort, MemoryKeys

_CLOSING = 30.0
"""Seconds that a guest may take to notice that nobody listens any more."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait before and behind a stage; one frame is always admitted. ``codec``: they
    wait compressed, and count as what they then are."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector with all that it may use. ``instance``: its place in the pipeline (``source``,
    ``transform:0``, ``destination``). ``keys``: its own state."""

    loaded: Loaded
    config: dict[str, Any]
    allowed: Effective
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    bounds: HostBounds = field(default_factory=HostBounds)
    pressure: Pressure = field(default_factory=Pressure)
    masker: Masker = field(default_factory=lambda: Masker(()))

    def session(self, host: Host) -> Session:
        return Session(
            self.loaded,
            host,
            grants=grants(self.allowed),
            memory=self.allowed.max_memory,
            seconds=self.allowed.timeout_seconds,
            masker=self.masker,
        )

    def host(
        self,
        stream: str,
        inbox: Pipe[Bytes | Squeezed] | None = None,
        out: Outlet | None = None,
    ) -> Host:
        return Host(
            self.loaded.role,
            stream=stream,
            instance=self.instance,
            hosts=self.allowed.hosts,
            keys=self.keys,
            inbox=inbox,
            out=out,
            bounds=self.bounds,
            masker=self.masker,
        )


def ask(
    stage: Stage,
    question: Callable[[Session], Any],
    log: Callable[[Logged], None],
    seconds: float | None = None,
) -> Any:
    """Open, one question, close, under the same permissions and limits as a run. Raises an error of
    the tree. ``log`` gets what the connector said. ``seconds``: until it must have answered, its
    waits for others included."""
    host = stage.host("", out=_Aside(log))
    answers: list[Any] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            with stage.session(host) as session:
                session.open(stage.config)
                answers.append(question(session))
        except Exception as e:
            failures.append(e)

    thread = threading.Thread(target=work, name=f"penstock-{stage.instance}", daemon=True)
    thread.start()
    thread.join(seconds)
    role = stage.loaded.role
    if failures:
        raise explain(role, failures[0], _first(host), stage.masker) from None
    if not answers:
        late = Trap(TrapKind.timeout, f"it did not answer within {seconds:g} s")
        raise explain(role, late, _first(host), stage.masker)
    return answers[0]


def validated(
    stage: Stage, log: Callable[[Logged], None], seconds: float | None = None
) -> ValidationReport:
    """Its answer to ``validate``, without its secrets. Raises an error of the tree."""
    report: ValidationReport = ask(stage, lambda session: session.validate(), log, seconds)
    return msgspec.structs.replace(
        report,
        message=stage.masker.mask(report.message),
        warnings=[stage.masker.mask(warning) for warning in report.warnings],
    )


class _Aside:
    """What is told beside an answer: lines of the log; there is no stage that takes frames."""

    def __init__(self, log: Callable[[Logged], None]) -> None:
        self._log = log

    def put(self, item: Told, size: int, patience: float) -> None:
        if isinstance(item, Logged):
            self._log(item)
        elif isinstance(item, Frame):
            raise Abandoned("nothing is read or written now")


def converse(
    stage: Stage,
    request: RunRequest,
    feed: Iterable[Bytes] | None = None,
    tick: float | None = None,
) -> Iterator[Told]:
    """Run one stream. The last item is ``Ended``, unless the generator is closed early, which ends
    the connector. ``tick``: ``Quiet`` comes after so many seconds without anything else. ``feed``:
    the frames it is given, drawn from a thread of its own; where drawing raises, the connector gets
    an error from ``next-batch``, never an end of stream."""
    out = _Outbox(stage.pressure)
    inbox: Pipe[Bytes | Squeezed] | None = None
    if feed is not None:
        inbox = Pipe(stage.pressure.inbox_bytes)
    run = _Run(stage, request, stage.host(request.context.stream_name, inbox, out), out)
    with run, _feeding(feed, inbox, stage):
        try:
            while not isinstance(told := _next(stage, out, tick), End):
                if isinstance(told, Ended):
                    run.join()
                    yield _timed(told, inbox, out)
                    return
                yield told
        finally:
            # Whoever listens is gone, or all was told: nothing may wait for us any more.
            out.pipe.abandon()
            if inbox is not None:
                inbox.abandon()


class _Outbox:
    """What a stage tells until somebody takes it; frames wait compressed where a codec is given."""

    def __init__(self, pressure: Pressure) -> None:
        self.heard_at = time.monotonic()
        self._codec: Codec | None = pressure.codec
        self.pipe: Pipe[Told | tuple[Squeezed, int]] = Pipe(pressure.outbox_bytes)

    def put(self, item: Told, size: int, patience: float) -> None:
        if isinstance(item, Frame):
            waits = squeeze(item.data, self._codec)
            if isinstance(waits, Squeezed):
                self.pipe.put((waits, item.number), len(waits), patience)
                return
        self.pipe.put(item, size, patience)

    def get(self, patience: float) -> Told | End:
        item = self.pipe.get(patience)
        return Frame(expand(item[0]), item[1]) if isinstance(item, tuple) else item


def _next(stage: Stage, out: _Outbox, tick: float | None) -> Told | End:
    patience = stage.bounds.patience
    try:
        told = out.get(patience if tick is None else min(tick, patience))
    except TooLong:
        if tick is not None and time.monotonic() - out.heard_at < patience:
            return Quiet()
        silent = BadAnswer(f"it said nothing for {patience:g} seconds")
        raise explain(stage.loaded.role, silent) from None
    out.heard_at = time.monotonic()
    return told


class _Run:
    """The guest's thread. On exit it has ended, or was left behind after ``_CLOSING`` seconds: its
    own time limit ends it then."""

    def __init__(self, stage: Stage, request: RunRequest, host: Host, out: _Outbox) -> None:
        self._stage = stage
        self._request = request
        self._host = host
        self._out = out
        self._keys = 0
        self._thread = threading.Thread(
            target=self._work, name=f"penstock-{stage.instance}", daemon=True
        )

    def __enter__(self) -> "_Run":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._host.stop()
        self._out.pipe.abandon()
        self.join()

    def join(self) -> None:
        self._thread.join(_CLOSING)

    def _work(self) -> None:
        summary: RunSummary | None = None
        failure: Exception | None = None
        session: Session | None = None
        worked = 0.0
        try:
            session = self._stage.session(self._host)
            try:
                session.open(self._stage.config)
                summary = session.run(self._request)
                self._keys = self._stage.keys.checkpoint()
            finally:
                session.close()
                worked = session.seconds
        except BaseException as e:
            # Whoever listens must be told, whatever it was.
            summary, failure = None, e if isinstance(e, Exception) else RuntimeError(repr(e))
        try:
            self._tell_end(summary, failure, worked)
        finally:
            self._out.pipe.end()

    def _tell_end(
        self, summary: RunSummary | None, failure: Exception | None, worked: float
    ) -> None:
        host = self._host
        dropped = host.lines_dropped
        if dropped:
            self._put(Logged("WARN", f"{dropped} more lines of the connector's log were dropped"))
        if host.metrics.dropped:
            text = f"{host.metrics.dropped} reports of metrics were dropped: too many, or too long"
            self._put(Logged("WARN", text))
        told = _first(host) if failure is not None else None
        own = failure.fault if isinstance(failure, Said) else None
        role, masker = self._stage.loaded.role, self._stage.masker
        self._put(
            Ended(
                summary=summary,
                error=explain(role, failure, told, masker) if failure is not None else None,
                fault=masked(own, masker) if own is not None else None,
                told=masked(told, masker) if told is not None else None,
                metrics=host.metrics.all(),
                frames_in=host.frames_in,
                frames_out=host.frames_out,
                waited=0.0,
                worked=worked,
                keys=self._keys,
            )
        )

    def _put(self, item: Told) -> None:
        try:
            self._out.put(item, 0, self._stage.bounds.patience)
        except (Abandoned, TooLong):
            return  # nobody listens


def _timed(ended: Ended, inbox: Pipe[Bytes | Squeezed] | None, out: _Outbox) -> Ended:
    ended.waited = out.pipe.put_waited + (inbox.get_waited if inbox is not None else 0.0)
    return ended


def _first(host: Host) -> Fault | None:
    return host.first_fault.fault if host.first_fault is not None else None


@contextmanager
def _feeding(
    feed: Iterable[Bytes] | None, inbox: Pipe[Bytes | Squeezed] | None, stage: Stage
) -> Generator[None]:
    if feed is None or inbox is None:
        yield
        return

    def draw() -> None:
        try:
            for data in feed:
                waits = squeeze(data, stage.pressure.codec)
                inbox.put(waits, len(waits), stage.bounds.patience)
        except Abandoned:
            return  # the connector wants no more
        except BaseException as e:
            inbox.fail(e)
        else:
            inbox.end()

    thread = threading.Thread(target=draw, name="penstock-feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        inbox.abandon()
        thread.join(_CLOSING)

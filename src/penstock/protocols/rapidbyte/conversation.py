"""One run of a connector on a thread of its own, and what it tells, in order, to whoever iterates.

The parts that the three roles share. The guest's thread opens, runs and closes; frames reach it
through an inbox that another thread fills, and leave it through an outbox; both are bounded in
bytes, so that a slow side holds the other back. Whoever waits for the guest looks at its clocks:
one that sleeps, or polls a silent peer, cannot be interrupted, but it can be given up. Neighbours:
``source``, ``destination``, ``transform``; ``told`` (what is yielded).
"""

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.model.catalog import StreamId
from penstock.protocols.rapidbyte.failures import Late, explain, masked
from penstock.protocols.rapidbyte.host import Host, HostBounds, Outlet
from penstock.protocols.rapidbyte.lifecycle import Loaded, Session
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
from penstock.runtimes.contract import Timeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.compiled import take_problems
from penstock.runtimes.wasm.contract import Trap, TrapKind
from penstock.runtimes.wasm.instance import MEMORY_SIGNS
from penstock.state.keys import KeyPort, MemoryKeys

LONGEST_CHECK = 600.0
LONGEST_DISCOVER = 3600.0
_CLOSING = 30.0
"""Seconds that a guest may take to notice that nobody listens any more."""
_LETTING_GO = 2.0
"""The same for one that was given up."""
_LOOK = 0.5
_SLACK = 1.0
"""Seconds beyond its limit in which the guest's own clock ends it."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that may wait before and behind a stage; one frame is always admitted. ``codec``: they
    wait compressed, and count as what they then are."""

    inbox_bytes: int = 64 << 20
    outbox_bytes: int = 64 << 20
    codec: Codec | None = None


@dataclass(frozen=True)
class Stage:
    """A connector with all that it may use. ``instance``: its place in the pipeline (``source``,
    ``transform:0``, ``destination``). ``keys``: its own state. ``owner``: whose stream-scoped keys
    these are (``StreamId.key``); empty: of a stream of the run's name, without a namespace."""

    loaded: Loaded
    config: dict[str, Any]
    allowed: Effective
    instance: str
    keys: KeyPort = field(default_factory=MemoryKeys)
    owner: str = ""
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
        owner: str,
        inbox: Pipe[Bytes | Squeezed] | None = None,
        out: Outlet | None = None,
    ) -> Host:
        return Host(
            self.loaded.role,
            stream=owner,
            instance=self.instance,
            hosts=self.allowed.hosts,
            keys=self.keys,
            inbox=inbox,
            out=out,
            bounds=self.bounds,
            masker=self.masker,
        )


class Within(msgspec.Struct, frozen=True):
    """Seconds until an answer must have come. ``key``: what a pipeline raises for more; None:
    nothing does."""

    seconds: float
    key: str | None = None

    @staticmethod
    def of(timeouts: Timeouts, most: float) -> "Within":
        """As a pipeline says, and at most as long as without one."""
        key = "timeouts.start" if timeouts.total is None else "timeouts.total"
        asked = timeouts.start if timeouts.total is None else timeouts.total
        return Within(asked, key) if asked < most else Within(most)


def ask(
    stage: Stage,
    question: Callable[[Session], Any],
    log: Callable[[Logged], None],
    within: Within | None = None,
) -> Any:
    """Open, one question, close, under the same permissions and limits as a run. Raises an error of
    the tree. ``log`` gets what the connector said. ``within``: its waits for others included; then
    it is given up."""
    aside = _Aside(log)
    host = stage.host("", out=aside)
    clock = _Clock(stage)
    answers: list[Any] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            _tell_problems(host)
            with stage.session(host) as clock.session:
                clock.session.open(stage.config)
                answers.append(question(clock.session))
        except BaseException as e:  # whoever asked must be told, whatever it was
            known = e if isinstance(e, Exception) else RuntimeError(repr(e))
            failures.append(_judged(known, host))

    thread = threading.Thread(target=work, name=f"penstock-{stage.instance}", daemon=True)
    thread.start()
    late = _awaited(thread, host, clock, within or Within(LONGEST_CHECK))
    told = _first(host)
    if late is not None:
        answered = bool(answers)  # what it says once it was stopped is none
        host.stop()
        thread.join(_LETTING_GO)
        late = None if answered else late
    aside.closed = True
    if late is None and answers:
        return answers[0]
    raise explain(stage.loaded.role, late or failures[0], told, stage.masker) from None


def _awaited(
    thread: threading.Thread, host: Host, clock: "_Clock", within: Within
) -> Exception | None:
    """Until the thread has ended; or why nobody waits for it any more."""
    until = time.monotonic() + within.seconds
    late: Exception | None = None
    while thread.is_alive() and late is None:
        left = until - time.monotonic()
        late = clock.overworked() or (_unanswered(within, host) if left <= 0 else None)
        thread.join(min(max(left, 0.0), _LOOK))
    return late


def _unanswered(within: Within, host: Host) -> Late:
    where = "see whether the system that it talks to answers"
    more = "" if within.key is None else f"; if it is only slow, raise {within.key}"
    text = f"it did not answer within {within.seconds:g} s{_waiting_for(host)}"
    return Late(text, "timeout", where + more)


def _waiting_for(host: Host) -> str:
    peer = host.waits_for
    return "" if peer is None else f", while it waited for {peer}"


def validated(
    stage: Stage, log: Callable[[Logged], None], within: Within | None = None
) -> ValidationReport:
    """Its answer to ``validate``, without its secrets. Raises an error of the tree."""
    report: ValidationReport = ask(stage, lambda session: session.validate(), log, within)
    return msgspec.structs.replace(
        report,
        message=stage.masker.mask(report.message),
        warnings=[stage.masker.mask(warning) for warning in report.warnings],
    )


class _Aside:
    """What is told beside an answer: lines of the log; there is no stage that takes frames."""

    def __init__(self, log: Callable[[Logged], None]) -> None:
        self._log = log
        self.closed = False

    def put(self, item: Told, size: int, patience: float) -> None:
        if isinstance(item, Logged) and not self.closed:
            self._log(item)
        elif isinstance(item, Frame):
            raise Abandoned("nothing is read or written now")


class _Clock:
    """What a guest has used of its time, for another thread than its own. ``session``: set once it
    is there; until then all time is its."""

    def __init__(self, stage: Stage) -> None:
        self.session: Session | None = None
        self._limit = stage.allowed.timeout_seconds
        self._began = time.monotonic()

    def used(self) -> float:
        session = self.session
        return time.monotonic() - self._began if session is None else session.seconds

    def overworked(self) -> Trap | None:
        """It sleeps in a call of the system's, where its own clock does not reach it."""
        if self.used() <= self._limit + _SLACK:
            return None
        return Trap(TrapKind.timeout, f"it worked or slept longer than {self._limit:g} seconds")


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
    owner = stage.owner or StreamId.of(None, request.context.stream_name).key
    run = _Run(stage, request, stage.host(owner, inbox, out), out)
    with run, _feeding(feed, inbox, stage, run):
        try:
            while not isinstance(told := run.next(tick), End):
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


class _Run:
    """The guest's thread. On exit it has ended, or was left behind after ``closing`` seconds: its
    own time limit ends it then."""

    def __init__(self, stage: Stage, request: RunRequest, host: Host, out: _Outbox) -> None:
        self._stage = stage
        self._request = request
        self._host = host
        self._out = out
        self._clock = _Clock(stage)
        self._keys = 0
        self._beats = 0
        self._silent = 0.0
        self.closing = _CLOSING
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
        self._thread.join(self.closing)

    def next(self, tick: float | None) -> Told | End:
        """What it tells next; ``Quiet`` after ``tick`` seconds; ``Ended`` also where it is given
        up."""
        until = None if tick is None else time.monotonic() + tick
        while True:
            began = time.monotonic()
            look = _LOOK if until is None else min(_LOOK, max(0.0, until - began))
            try:
                told = self._out.get(look)
            except TooLong:
                told = None
            self._listened(time.monotonic() - began)
            if told is None or isinstance(told, Logged):  # a line is no sign of life
                late = self._late(quiet=told is None)
                if late is not None:
                    return self._given_up(late)
            if told is not None:
                return told
            if until is not None and time.monotonic() >= until:
                return Quiet()

    def _listened(self, seconds: float) -> None:
        """Silence is time spent waiting for the guest only: neither while whoever listens is busy,
        nor while the guest waits for its next frame."""
        beats, asking = self._host.beats, self._host.asking
        alive = asking or beats != self._beats
        self._beats = beats
        self._silent = 0.0 if alive else self._silent + seconds

    def _late(self, *, quiet: bool) -> Exception | None:
        """``quiet``: nothing that it told waits to be heard."""
        bounds = self._stage.bounds
        patience = bounds.patience if bounds.silence is None else bounds.silence
        if self._silent >= patience:
            source = self._stage.loaded.role == "source"
            what = "sent no record and no state" if source else "took nothing and gave nothing"
            text = f"it {what} for {patience:g} s{_waiting_for(self._host)}"
            hint = (
                "see in the log what it said last, and whether the system that it talks to "
                "answers; if it is only slow, raise timeouts.heartbeat"
            )
            return Late(text, "heartbeat", hint)
        return self._clock.overworked() if quiet else None

    def _given_up(self, late: Exception) -> Ended:
        ended = self._ended(None, late, self._clock.used())
        self._host.stop()
        self.closing = _LETTING_GO
        return ended

    def _work(self) -> None:
        summary: RunSummary | None = None
        failure: Exception | None = None
        worked = 0.0
        try:
            _tell_problems(self._host)
            session = self._clock.session = self._stage.session(self._host)
            try:
                session.open(self._stage.config)
                summary = session.run(self._request)
            finally:
                session.close()
                worked = session.seconds
            self._keys = self._stage.keys.checkpoint()  # what it put as it closed is its run's too
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
        self._put(self._ended(summary, failure, worked))

    def _ended(self, summary: RunSummary | None, failure: Exception | None, worked: float) -> Ended:
        host, role, masker = self._host, self._stage.loaded.role, self._stage.masker
        told = _first(host) if failure is not None else None
        own = failure.fault if isinstance(failure, Said) else None
        judged = None if failure is None else _judged(failure, host)
        return Ended(
            summary=summary,
            error=explain(role, judged, told, masker) if judged is not None else None,
            fault=masked(own, masker) if own is not None else None,
            told=masked(told, masker) if told is not None else None,
            metrics=host.metrics.all(),
            frames_in=host.frames_in,
            frames_out=host.frames_out,
            waited=0.0,
            worked=worked,
            keys=self._keys,
        )

    def _put(self, item: Told) -> None:
        try:
            self._out.put(item, 0, self._stage.bounds.patience)
        except (Abandoned, TooLong):
            return  # nobody listens


def _timed(ended: Ended, inbox: Pipe[Bytes | Squeezed] | None, out: _Outbox) -> Ended:
    ended.waited = out.pipe.put_waited + (inbox.get_waited if inbox is not None else 0.0)
    return ended


def _judged(error: Exception, host: Host) -> Exception:
    """A crash of a guest whose last words were that it has no more memory is of that kind."""
    if not isinstance(error, Trap) or error.kind is not TrapKind.crashed:
        return error
    if not any(sign in host.last_line for sign in MEMORY_SIGNS):
        return error
    message = "it ran out of memory"
    return Trap(TrapKind.memory, message, detail=error.detail, stderr=error.stderr)


def _tell_problems(host: Host) -> None:
    for text in take_problems():
        host.say("WARN", text)


def _first(host: Host) -> Fault | None:
    return host.first_fault.fault if host.first_fault is not None else None


@contextmanager
def _feeding(
    feed: Iterable[Bytes] | None, inbox: Pipe[Bytes | Squeezed] | None, stage: Stage, run: _Run
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
        thread.join(run.closing)

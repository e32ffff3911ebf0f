"""Talking to a running Airbyte source: blocks, silence, time limits, the exit.

Not here: what lines mean (``lines``, ``asides``), which commands there are (``source``). Every wait
is bounded (L11). Neighbours: ``runtimes.contract`` runs the process, ``codec.framing`` cuts lines.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from penstock.codec.framing import LineFramer, Lines, Oversized
from penstock.model.events import Error, Event, Exited, Tick
from penstock.protocols.airbyte.asides import Asides
from penstock.protocols.airbyte.lines import Sorter
from penstock.protocols.airbyte.messages import ABSENT, LineOther
from penstock.runtimes.contract import Argument, ByteChannel, Runtime, Timeouts

_EXIT_GRACE = 60.0  # seconds between the end of stdout and the exit of the process
_ANSWER_BYTES = 256 * 1024 * 1024  # of one line of spec, check, discover


class TimedOut(Exception):
    """A limit of ``Timeouts`` was passed; ``code`` as in an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Watch:
    """The clocks of one conversation. Silence is time spent waiting for the source only: a slow
    reader of events does not use up the source's heartbeat. A wait that ran out counts as long as
    it was asked for, so that a runtime in virtual time keeps these clocks too."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._limits = timeouts
        self._started = time.monotonic()
        self._spoke = False
        self._silent = 0.0

    def beat(self) -> None:
        self._silent = 0.0

    def read(self, channel: ByteChannel, bound: float) -> bytes | None:
        """One read, at most ``bound`` seconds and no longer than a limit allows. Raises
        :class:`TimedOut`."""
        bound = min(bound, self._patience())
        before = time.monotonic()
        block = channel.read(bound)
        elapsed = time.monotonic() - before
        if block is None and elapsed < bound:
            self._started -= bound - elapsed
            elapsed = bound
        self._silent += elapsed
        self._spoke = self._spoke or bool(block)
        return block

    def _patience(self) -> float:
        limits, age = self._limits, time.monotonic() - self._started
        left = float("inf") if limits.total is None else limits.total - age
        if left <= 0:
            raise TimedOut(
                "source.timeout", f"the source was still running after {limits.total:g} s"
            )
        bound = limits.heartbeat if self._spoke else limits.start
        if self._silent < bound:
            return min(left, bound - self._silent)
        if self._spoke:
            raise TimedOut(
                "source.heartbeat", f"the source sent no record and no state for {bound:g} s"
            )
        raise TimedOut("source.start_timeout", f"the source printed nothing for {bound:g} s")


Items = list[Lines | Oversized]


def _blocks(
    channel: ByteChannel, framer: LineFramer, watch: _Watch, tick: float
) -> Iterator[Items | None]:
    """The lines that each block of stdout completes, until it ends; None for every ``tick``
    seconds of silence."""
    while (block := watch.read(channel, tick)) != b"":
        yield None if block is None else list(framer.feed(block))
    yield list(framer.finish())


def _exit_code(channel: ByteChannel, tick: float, grace: float) -> Iterator[int | None]:
    """None for every ``tick`` that passes before the process has ended, then its exit code."""
    waited = 0.0
    while waited < grace:
        code = channel.wait(tick)
        yield code
        if code is not None:
            return
        waited += tick
    raise TimedOut("source.no_exit", f"the source closed its output and did not end in {grace:g} s")


def read(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: Timeouts,
    sorter: Sorter,
    framer: LineFramer,
    tick: float,
) -> Iterator[Event]:
    """One read's events; the last one is ``Exited``. A ``Tick`` comes every ``tick`` seconds,
    whether the source is silent or not."""
    with runtime.open(arguments, timeouts) as channel:
        watch = _Watch(timeouts)
        beats, ticked = 0, time.monotonic()
        try:
            for items in _blocks(channel, framer, watch, tick):
                for item in items or ():
                    yield from _sorted(item, sorter)
                yield from sorter.flush()
                if sorter.beats != beats:
                    beats = sorter.beats
                    watch.beat()
                if items is None or time.monotonic() - ticked >= tick:
                    ticked = time.monotonic()
                    yield Tick()
            for code in _exit_code(channel, tick, _EXIT_GRACE):
                yield Tick() if code is None else Exited(code, channel.stderr_tail())
        except TimedOut as e:
            channel.stop()
            yield Error(str(e), "system_error", raw={"code": e.code})
            yield Exited(None, channel.stderr_tail())
        finally:
            framer.close()


def _sorted(item: Lines | Oversized, sorter: Sorter) -> Iterator[Event]:
    if isinstance(item, Oversized):
        return sorter.oversized(item.size, item.head, item.path)
    return sorter.chunk(bytes(item.data), terminated=item.terminated)


class Answer(msgspec.Struct):
    """What a command that answers once said. ``body``: the JSON of its answer, None: there was
    none. ``code`` None: we stopped it. ``error``: the last TRACE ERROR."""

    body: bytes | None = None
    error: Error | None = None
    code: int | None = None
    stderr_tail: str = ""
    timed_out: TimedOut | None = None


class _AnswerLine(LineOther, gc=False):
    spec: msgspec.Raw = ABSENT
    connection_status: msgspec.Raw = msgspec.field(default=ABSENT, name="connectionStatus")
    catalog: msgspec.Raw = ABSENT


_ANSWER = msgspec.json.Decoder(_AnswerLine)


def ask(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: Timeouts,
    expected: str,
    log: Callable[[Event], None],
) -> Answer:
    """Run a command and take the first message of the type ``expected``; everything else it says
    goes to ``log``. A source that answered is given ``Timeouts.stop`` seconds to end."""
    answer = Answer()
    asides = Asides()
    stop = timeouts.stop
    with runtime.open(arguments, timeouts) as channel:
        try:
            answered = float("inf")
            for items in _blocks(channel, LineFramer(_ANSWER_BYTES), _Watch(timeouts), stop):
                for raw in _raw_lines(items):
                    for event in _heard(raw, expected, answer, asides):
                        log(event)
                if answer.body is not None:
                    answered = min(answered, time.monotonic())
                    if items is None or time.monotonic() - answered > stop:
                        break
            for code in _exit_code(channel, stop, stop):
                answer.code = code
        except TimedOut as e:
            answer.timed_out = e
        channel.stop()
        answer.stderr_tail = channel.stderr_tail()
    for event in asides.counted():
        log(event)
    return answer


def _raw_lines(items: Items | None) -> Iterator[bytes]:
    for item in items or ():
        if isinstance(item, Lines):
            yield from bytes(item.data).split(b"\n")


def _heard(raw: bytes, expected: str, answer: Answer, asides: Asides) -> Iterator[Event]:
    """Take a line into ``answer``, or give the events it is."""
    if not raw.strip():
        return
    try:
        line = _ANSWER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from asides.noise("text_line", raw)
        return
    if line.type.upper() == expected and answer.body is None:
        body = {"SPEC": line.spec, "CATALOG": line.catalog}.get(expected, line.connection_status)
        if body is not ABSENT:
            answer.body = bytes(body)
            return
    for event in asides.other(line, raw):
        if isinstance(event, Error):
            answer.error = event
        yield event

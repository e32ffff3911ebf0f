"""A guest's run of one stream, on a thread of its own, and what it tells until somebody takes it.

The guest's thread opens, runs and closes. What it tells waits in an outbox that is bounded in
bytes, so that a slow listener holds it back. Whoever waits for the guest looks at its clocks
(``deadlines``). Neighbours: ``stream_run`` feeds it and listens; ``events`` (what it tells).
"""

import threading
import time

from penstock.byte_queue import Abandoned, ByteQueue, End, TooLong
from penstock.protocols.rapidbyte.guest.deadlines import LETTING_GO, LOOK, Clock, waiting_for
from penstock.protocols.rapidbyte.guest.errors import (
    Late,
    explain,
    first_fault,
    judged,
)
from penstock.protocols.rapidbyte.guest.events import Ended, Frame, Logged, Quiet, Told
from penstock.protocols.rapidbyte.guest.host import Host
from penstock.protocols.rapidbyte.guest.stage import Pressure, Stage
from penstock.protocols.rapidbyte.wire.compression import (
    Bytes,
    Codec,
    CompressedFrame,
    compress,
    decompress,
)
from penstock.protocols.rapidbyte.wire.messages import RunRequest, RunSummary
from penstock.protocols.rapidbyte.wire.wit_records import FaultReturned

_CLOSING = 30.0
"""Seconds that a guest may take to notice that nobody listens any more."""


class Inbox:
    """Frames that wait for a guest, bounded in bytes; compressed where a codec is given."""

    def __init__(self, pressure: Pressure) -> None:
        self._codec: Codec | None = pressure.codec
        self.pipe: ByteQueue[Bytes | CompressedFrame] = ByteQueue(pressure.inbox_bytes)

    def put(self, frame: Bytes, patience: float) -> None:
        """Raises ``Abandoned`` where it takes no more, ``TooLong``."""
        waits = compress(frame, self._codec)
        self.pipe.put(waits, len(waits), patience)


class Outbox:
    """What a stage tells until somebody takes it; frames wait compressed where a codec is given."""

    def __init__(self, pressure: Pressure) -> None:
        self._codec: Codec | None = pressure.codec
        self.pipe: ByteQueue[Told | tuple[CompressedFrame, int]] = ByteQueue(pressure.outbox_bytes)

    def put(self, item: Told, size: int, patience: float) -> None:
        if isinstance(item, Frame):
            waits = compress(item.data, self._codec)
            if isinstance(waits, CompressedFrame):
                self.pipe.put((waits, item.number), len(waits), patience)
                return
        self.pipe.put(item, size, patience)

    def get(self, patience: float) -> Told | End:
        item = self.pipe.get(patience)
        return Frame(decompress(item[0]), item[1]) if isinstance(item, tuple) else item


class Run:
    """The guest's thread. On exit it has ended, or was left behind after ``closing`` seconds: its
    own time limit ends it then."""

    def __init__(self, stage: Stage, request: RunRequest, host: Host, out: Outbox) -> None:
        self._stage = stage
        self._request = request
        self._host = host
        self._out = out
        self._clock = Clock(stage)
        self._keys = 0
        self._beats = 0
        self._silent = 0.0
        self.closing = _CLOSING
        self._thread = threading.Thread(
            target=self._work, name=f"penstock-{stage.instance}", daemon=True
        )

    def __enter__(self) -> "Run":
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
            look = LOOK if until is None else min(LOOK, max(0.0, until - began))
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
            text = f"it {what} for {patience:g} s{waiting_for(self._host)}"
            hint = (
                "see in the log what it said last, and whether the system that it talks to "
                "answers; if it is only slow, raise timeouts.heartbeat"
            )
            return Late(text, "heartbeat", hint)
        return self._clock.overworked() if quiet else None

    def _given_up(self, late: Exception) -> Ended:
        ended = self._ended(None, late, self._clock.used())
        self._host.stop()
        self.closing = LETTING_GO
        return ended

    def _work(self) -> None:
        summary: RunSummary | None = None
        failure: Exception | None = None
        worked = 0.0
        try:
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
        host, role = self._host, self._stage.loaded.role
        told = first_fault(host) if failure is not None else None
        own = failure.fault if isinstance(failure, FaultReturned) else None
        verdict = None if failure is None else judged(failure, host)
        return Ended(
            summary=summary,
            error=explain(role, verdict, told) if verdict is not None else None,
            fault=own,
            told=told,
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

"""Runs one stream of a guest on its own thread, and queues its events until they are taken.

The thread opens, runs and closes a session. Events wait in an outbox bounded in bytes, so that a
slow reader slows the guest down. The reader watches the guest's clock and its activity and abandons
it when it is late (``deadlines``). Neighbours: ``stream_run`` feeds it and reads; ``events``
declares the events.
"""

import threading
import time

from penstock.byte_queue import ByteQueue, QueueAbandoned, QueueEnd, TooLong
from penstock.protocols.rapidbyte.guest.deadlines import (
    ABANDON_SECONDS,
    POLL_SECONDS,
    Clock,
    waiting_for,
)
from penstock.protocols.rapidbyte.guest.errors import (
    Unresponsive,
    check_frames,
    explain,
    first_fault,
    reclassified,
)
from penstock.protocols.rapidbyte.guest.events import (
    ComponentLog,
    Frame,
    Quiet,
    RunEnded,
    StageEvent,
)
from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.guest.stage import QueueBounds, Stage
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
"""Seconds for a guest to end after its reader is gone."""


class Inbox:
    """Queues frames for a guest, bounded in bytes; compressed where ``pressure`` has a codec."""

    def __init__(self, pressure: QueueBounds) -> None:
        self._codec: Codec | None = pressure.codec
        self.pipe: ByteQueue[Bytes | CompressedFrame] = ByteQueue(pressure.inbox_bytes)

    def put(self, frame: Bytes, timeout: float) -> None:
        """Adds a frame, after at most ``timeout`` seconds. Raises ``QueueAbandoned`` where the
        guest takes no more, ``TooLong``."""
        queued = compress(frame, self._codec)
        self.pipe.put(queued, len(queued), timeout)


class Outbox:
    """Queues a stage's events, bounded in bytes; frames are compressed where ``pressure`` has a
    codec."""

    def __init__(self, pressure: QueueBounds) -> None:
        self._codec: Codec | None = pressure.codec
        self.pipe: ByteQueue[StageEvent | tuple[CompressedFrame, int]] = ByteQueue(
            pressure.outbox_bytes
        )

    def put(self, item: StageEvent, size: int, timeout: float) -> None:
        if isinstance(item, Frame):
            queued = compress(item.data, self._codec)
            if isinstance(queued, CompressedFrame):
                self.pipe.put((queued, item.number), len(queued), timeout)
                return
        self.pipe.put(item, size, timeout)

    def get(self, timeout: float) -> StageEvent | QueueEnd:
        item = self.pipe.get(timeout)
        return Frame(decompress(item[0]), item[1]) if isinstance(item, tuple) else item


class GuestRun:
    """Runs the guest's thread, as a context manager. On exit the thread has ended, or is abandoned
    after ``closing`` seconds: the guest's own time limit ends it later."""

    def __init__(self, stage: Stage, request: RunRequest, host: HostFunctions, out: Outbox) -> None:
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

    def __enter__(self) -> "GuestRun":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._host.stop()
        self._out.pipe.abandon()
        self.join()

    def join(self) -> None:
        self._thread.join(self.closing)

    def next(self, tick: float | None) -> StageEvent | QueueEnd:
        """Returns the next event; ``Quiet`` after ``tick`` seconds without one; ``RunEnded`` also
        where the guest is abandoned."""
        until = None if tick is None else time.monotonic() + tick
        while True:
            began = time.monotonic()
            look = POLL_SECONDS if until is None else min(POLL_SECONDS, max(0.0, until - began))
            try:
                event = self._out.get(look)
            except TooLong:
                event = None
            self._listened(time.monotonic() - began)
            if event is None or isinstance(event, ComponentLog):  # a log line is no activity
                late = self._late(quiet=event is None)
                if late is not None:
                    return self._given_up(late)
            if event is not None:
                return event
            if until is not None and time.monotonic() >= until:
                return Quiet()

    def _listened(self, seconds: float) -> None:
        """Counts silence: the time in which the reader waits for the guest, not while the reader is
        busy or the guest waits for its next frame."""
        beats, asking = self._host.beats, self._host.awaiting_frame
        alive = asking or beats != self._beats
        self._beats = beats
        self._silent = 0.0 if alive else self._silent + seconds

    def _late(self, *, quiet: bool) -> Exception | None:
        """Returns why the guest is abandoned; None: it is not. ``quiet``: none of its events waits
        to be read."""
        bounds = self._stage.bounds
        silence = bounds.timeout if bounds.silence is None else bounds.silence
        if self._silent >= silence:
            source = self._stage.loaded.role == "source"
            what = "sent no record and no state" if source else "took nothing and gave nothing"
            text = f"it {what} for {silence:g} s{waiting_for(self._host)}"
            hint = (
                "see its last output in the log, and whether the system that it talks to "
                "answers; if it is only slow, raise timeouts.heartbeat"
            )
            return Unresponsive(text, "heartbeat", hint)
        return self._clock.over_limit() if quiet else None

    def _given_up(self, late: Exception) -> RunEnded:
        ended = self._ended(None, late, self._clock.used())
        self._host.stop()
        self.closing = ABANDON_SECONDS
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
                check_frames(self._host.frames_lost)
            finally:
                session.close()
                worked = session.seconds
            self._keys = self._stage.keys.checkpoint()  # keys put during close belong to the run
        except BaseException as e:
            # The reader must get a ``RunEnded``, whatever was raised.
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
            self._put(
                ComponentLog("WARN", f"{dropped} more lines of the connector's log were dropped")
            )
        if host.metrics.dropped:
            text = f"{host.metrics.dropped} reports of metrics were dropped: too many, or too long"
            self._put(ComponentLog("WARN", text))
        self._put(self._ended(summary, failure, worked))

    def _ended(
        self, summary: RunSummary | None, failure: Exception | None, worked: float
    ) -> RunEnded:
        host, role = self._host, self._stage.loaded.role
        host_fault = first_fault(host) if failure is not None else None
        own = failure.fault if isinstance(failure, FaultReturned) else None
        cause = None if failure is None else reclassified(failure, host)
        return RunEnded(
            summary=summary,
            error=explain(role, cause, host_fault) if cause is not None else None,
            fault=own,
            host_fault=host_fault,
            metrics=host.metrics.all(),
            frames_in=host.frames_in,
            frames_out=host.frames_out,
            waited=0.0,
            worked=worked,
            keys=self._keys,
        )

    def _put(self, item: StageEvent) -> None:
        try:
            self._out.put(item, 0, self._stage.bounds.timeout)
        except (QueueAbandoned, TooLong):
            return  # the reader has left

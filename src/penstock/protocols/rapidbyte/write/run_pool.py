"""Starts and ends the runs of a destination: few at a time, whatever the number of streams.

The first run of a stream that does not replace comes after an empty run, like the preflight of v4's
host. A destination may store the position of an earlier run, skip as many records of the next one,
and forget it only when a run ends well (v4's own Postgres destination does). Where there is no
room, the least recently fed run ends, which commits it. Every wait ends once the write is stopped.
Not here: which frames a run gets (``writer``), its events (``answers``).
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

from penstock.byte_queue import QueueAbandoned
from penstock.errors import Defect, PenstockError
from penstock.model.catalog import StreamId
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import (
    ComponentLog,
    DeadLettered,
    RunEnded,
    StageEvent,
)
from penstock.protocols.rapidbyte.guest.guest_thread import Inbox
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import DeadLetter, StreamContext
from penstock.protocols.rapidbyte.write.write_context import WriteSettings, replaces
from penstock.protocols.writing import WriteStream

IDLE_SECONDS = 60.0  # without rows, after which a run is ended and so committed
RUN_SECONDS = 900.0  # the longest run of a stream that may be written in several runs
CLOSING_SECONDS = 30.0  # for all runs to roll back, after the write is stopped
_LOOK = 1.0


class WriteStopped(Exception):
    """Raised in the feeding thread where the write was stopped."""


class StreamRun:
    """One run of a destination component, for frames of one stream: the frames go into the guest's
    inbox, and its events are read on a separate thread. ``version``: of the schema of its frames.
    ``base``: frames of the stream fed before this run. ``alike``: its dead letters so far that are
    equal to an earlier one. ``ended``: its input has ended, all ``given`` frames were put;
    ``broken``: its feed failed, so that its end acknowledges nothing; ``finished``: its thread has
    ended. ``opening``: its events are those of the preceding empty run. ``fed_at``: time of the
    last frame."""

    def __init__(
        self, stream: WriteStream, version: int, *, base: int, inbox: Inbox, now: float
    ) -> None:
        self.stream, self.version, self.base = stream, version, base
        self.alike = 0
        self._aside: dict[int, int] = {}  # of records put aside: hashes of text and first reason
        self._rows = [0]  # rows of the first n frames, by n
        self.began = self.fed_at = now
        self.ended = self.broken = self.finished = self.opening = False
        self._inbox = inbox
        self._thread: threading.Thread | None = None

    def start(
        self,
        stage: Stage,
        context: StreamContext,
        on_event: Callable[["StreamRun", StageEvent], None],
        on_over: Callable[["StreamRun", PenstockError | None], None],
        *,
        preflight: bool,
    ) -> None:
        """Starts the thread. ``stage``: with its own port to keys, which is closed at the end.
        ``on_event`` gets every event, ``RunEnded`` among them; ``on_over`` is called last, with the
        error that was raised in place of a ``RunEnded``. Both are called from the thread.
        ``preflight``: an empty run comes first, and the run only where that ends well."""

        def work() -> None:
            failure: PenstockError | None = None
            try:
                with closing(stage.keys):
                    if preflight and not self._preflight(stage, context, on_event):
                        return
                    with closing(
                        cast(Any, stream_run.write(stage, context, self._inbox))
                    ) as events:
                        for event in events:
                            if isinstance(event, RunEnded):
                                self._inbox.pipe.abandon()
                            on_event(self, event)
            except QueueAbandoned:
                pass  # answers are no longer taken
            except PenstockError as e:
                failure = e
            except Exception as e:  # the stream must not count as written
                failure = Defect(f"a run of {self.stream.id} broke: {e!r}")
            finally:
                self._inbox.pipe.abandon()
                on_over(self, failure)

        self._thread = threading.Thread(target=work, name="penstock-run", daemon=True)
        self._thread.start()

    def _preflight(
        self,
        stage: Stage,
        context: StreamContext,
        on_event: Callable[["StreamRun", StageEvent], None],
    ) -> bool:
        """Makes the empty run; returns whether the run may follow. Passes on log lines, a failure,
        and dead letters, which v4's host drops; checkpoints and metrics of no rows have no
        meaning."""
        inbox = Inbox(stage.pressure)
        inbox.pipe.end()
        self.opening = True
        with closing(cast(Any, stream_run.write(stage, context, inbox))) as events:
            for event in events:
                failed = isinstance(event, RunEnded) and event.error is not None
                if failed or isinstance(event, ComponentLog | DeadLettered):
                    on_event(self, event)
                if failed:
                    return False
        self.opening = False
        return not self.broken

    def put(self, frame: Bytes, rows: int, timeout: float) -> None:
        """Gives the guest a frame of ``rows`` rows. Raises ``QueueAbandoned`` where it takes no
        more, ``TooLong`` after ``timeout`` seconds."""
        self._rows.append(self._rows[-1] + rows)
        self._inbox.put(frame, timeout)

    def put_aside(self, letter: DeadLetter) -> bool:
        """Notes a dead letter. Returns whether it is the first of its record: a record may get
        several, for several reasons, or be one of several of equal text."""
        known, reason = len(self._aside), hash(letter.error_message)
        same = self._aside.setdefault(hash(letter.record_json), reason) == reason
        first = len(self._aside) > known
        self.alike += same and not first
        return first

    @property
    def refused(self) -> int:
        """The number of records with a dead letter so far; those with equal text count as one."""
        return len(self._aside)

    @property
    def given(self) -> int:
        """The number of frames that were put."""
        return len(self._rows) - 1

    def rows(self, frames: int) -> int:
        """Returns the number of rows in its first ``frames`` frames."""
        return self._rows[frames]

    @property
    def put_waited(self) -> float:
        return self._inbox.pipe.put_waited

    def end(self) -> None:
        """Ends the input, so that the guest commits."""
        self.ended = True
        self._inbox.pipe.end()

    def fail(self, cause: BaseException) -> None:
        """Puts an error behind the frames in the inbox, so that the guest rolls back. No effect
        where the input has ended already."""
        if not self.ended:
            self.broken = True
            self._inbox.pipe.fail(cause)

    def give_up(self) -> None:
        """Refuses the guest's next frame, so that it rolls back at once."""
        self.broken = True
        self._inbox.pipe.abandon()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)


class LiveRuns:
    """Tracks the live runs of a write. The feeding thread calls every method but :meth:`stop`.
    ``on_event``, ``on_over``: as in ``StreamRun.start``. ``waited``: seconds in which the feed
    waited for runs to end."""

    def __init__(
        self,
        terms: WriteSettings,
        on_event: Callable[[StreamRun, StageEvent], None],
        on_over: Callable[[StreamRun, PenstockError | None], None],
    ) -> None:
        self._terms, self._on_event, self._on_over = terms, on_event, on_over
        self._runs: dict[StreamId, StreamRun] = {}  # the last one was fed last
        self._begun: set[StreamId] = set()
        self._changed = threading.Condition()
        self._stopped = False
        self.waited = 0.0

    def get(self, stream: StreamId) -> StreamRun | None:
        return self._runs.get(stream)

    def all(self) -> list[StreamRun]:
        return list(self._runs.values())

    def begin(self, stream: WriteStream, version: int, base: int) -> StreamRun:
        """Starts a run, after ending another one where there is no room. A run that replaces rows
        is ended only when all runs are, since a generation must be written in one run; as in v4 it
        has no preflight, since it begins empty."""
        bound = self._terms.at_once
        while len(self._runs) >= bound:
            runs = self.all()
            if runs and not any(r.ended for r in runs):
                next((r for r in runs if not replaces(r.stream)), runs[0]).end()
            self._await(lambda: len(self._runs) < bound)
        now = time.monotonic()
        inbox = Inbox(self._terms.stage.pressure)
        run = StreamRun(stream, version, base=base, inbox=inbox, now=now)
        with self._changed:
            self._runs[stream.id] = run
        context = self._terms.context(stream, version)
        preflight = not replaces(stream) and stream.id not in self._begun
        self._begun.add(stream.id)
        stage = self._terms.stage_of(stream)
        run.start(stage, context, self._on_event, self._ended, preflight=preflight)
        return run

    def used(self, run: StreamRun) -> None:
        """Marks the run as fed now."""
        run.fed_at = time.monotonic()
        with self._changed:
            if self._runs.pop(run.stream.id, None) is not None:
                self._runs[run.stream.id] = run

    def await_end(self, run: StreamRun) -> None:
        self._await(lambda: run.finished)

    def end_stale(self, heartbeat: float) -> None:
        """Ends the runs without rows, so that they commit, and those close to a bound: a run must
        be shorter than the destination's silence timeout, and than its time limit."""
        now, quiet, work = time.monotonic(), heartbeat / 4, self._terms.stage.allowed
        idle = min(IDLE_SECONDS, quiet)
        longest = min(RUN_SECONDS, quiet, work.timeout_seconds / 2)
        for run in self.all():
            stale = now - run.fed_at > idle or now - run.began > longest
            if stale and not run.ended and not replaces(run.stream):
                run.end()

    def await_all(self) -> None:
        """Waits for all runs to end. Each is bounded by its own time limit and by the timeout for a
        silent destination."""
        self._wait(lambda: not self._runs)

    def fail_all(self, cause: BaseException) -> None:
        """Makes all runs roll back, and waits for them, at most ``CLOSING_SECONDS``."""
        for run in self.all():
            run.fail(cause)
        until = time.monotonic() + CLOSING_SECONDS
        with self._changed:
            while self._runs and not self._stopped and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, _LOOK))

    def check(self) -> None:
        """Raises :class:`WriteStopped` where the write was stopped."""
        if self._stopped:
            raise WriteStopped

    # -- the thread that takes answers

    def stop(self) -> list[StreamRun]:
        """Stops the write: all runs roll back. Returns them, so that the caller can join them."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            runs = self.all()
        for run in runs:
            run.give_up()
        return runs

    # -- inside

    def _ended(self, run: StreamRun, failure: PenstockError | None) -> None:
        """Removes a run; called from its thread."""
        try:
            self._on_over(run, failure)
        finally:
            with self._changed:
                run.finished = True
                if self._runs.get(run.stream.id) is run:
                    del self._runs[run.stream.id]
                self._changed.notify_all()

    def _await(self, ready: Callable[[], bool]) -> None:
        began = time.monotonic()
        self._wait(ready)
        self.waited += time.monotonic() - began

    def _wait(self, ready: Callable[[], bool]) -> None:
        with self._changed:
            while not ready():
                self.check()
                self._changed.wait(_LOOK)

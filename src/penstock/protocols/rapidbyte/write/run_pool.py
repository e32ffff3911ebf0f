"""The runs of a destination that live at the same time: few, whatever the number of streams.

Where there is no room the run that was fed least recently ends, which commits it. Every wait ends
once the write is given up. Not here: what is given to a run (``writer``), what it tells
(``answers``).
"""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

from penstock.byte_queue import Abandoned
from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.protocols.contract import WriteStream
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import Ended, Told
from penstock.protocols.rapidbyte.guest.guest_thread import Inbox
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import StreamContext
from penstock.protocols.rapidbyte.write.write_context import Terms, replaces

IDLE_SECONDS = 60.0  # without rows: what a run has is committed
RUN_SECONDS = 900.0  # the longest run of a stream that need not be one
CLOSING_SECONDS = 30.0  # for all runs to roll back, where the write is given up
_LOOK = 1.0


class Stopped(Exception):
    """The write is given up."""


class StreamRun:
    """One run: the frames of one stream, from its ``open`` to its ``close``, put into its guest's
    inbox, and heard on a thread of its own. ``version``: of the schema of its frames. ``base``:
    frames of the stream that were fed before its first. ``ended``: its input has ended, all
    ``given`` frames were put; ``broken``: it was told that its feed failed, so that its end proves
    nothing. ``fed_at``: when it was fed last."""

    def __init__(
        self, stream: WriteStream, version: int, *, base: int, inbox: Inbox, now: float
    ) -> None:
        self.stream, self.version, self.base = stream, version, base
        self.given = 0
        self.began = self.fed_at = now
        self.ended = self.broken = self.over = False
        self._inbox = inbox
        self._thread: threading.Thread | None = None

    def start(
        self,
        stage: Stage,
        context: StreamContext,
        hear: Callable[["StreamRun", Told], None],
        over: Callable[["StreamRun", PenstockError | None], None],
    ) -> None:
        """``stage``: with a port to its keys of its own, which is closed behind it. ``hear`` gets
        all it tells, ``Ended`` among it; ``over`` comes last of all, with what kept it from telling
        its end. Both are called from its thread."""

        def work() -> None:
            failure: PenstockError | None = None
            try:
                told = cast(Any, stream_run.write(stage, context, self._inbox))
                with closing(stage.keys), closing(told):
                    for item in told:
                        if isinstance(item, Ended):
                            self._inbox.pipe.abandon()
                        hear(self, item)
            except Abandoned:
                pass  # nobody listens any more
            except PenstockError as e:
                failure = e
            finally:
                self._inbox.pipe.abandon()
                over(self, failure)

        self._thread = threading.Thread(target=work, name="penstock-run", daemon=True)
        self._thread.start()

    def put(self, frame: Bytes, patience: float) -> None:
        """Raises ``Abandoned`` where it takes no more, ``TooLong``."""
        self._inbox.put(frame, patience)

    @property
    def put_waited(self) -> float:
        return self._inbox.pipe.put_waited

    def end(self) -> None:
        """Nothing follows: it commits."""
        self.ended = True
        self._inbox.pipe.end()

    def fail(self, cause: BaseException) -> None:
        """Its next frame is an error, behind those that it was given: it rolls back. Not where its
        input has ended already."""
        if not self.ended:
            self.broken = True
            self._inbox.pipe.fail(cause)

    def give_up(self) -> None:
        """The same at once."""
        self.broken = True
        self._inbox.pipe.abandon()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)


class LiveRuns:
    """All but :meth:`stop` and :meth:`give_up` belongs to the thread that feeds. ``hear``,
    ``over``: as in ``StreamRun.start``. ``waited``: seconds for runs to end, while others could
    have been fed."""

    def __init__(
        self,
        terms: Terms,
        hear: Callable[[StreamRun, Told], None],
        over: Callable[[StreamRun, PenstockError | None], None],
    ) -> None:
        self._terms, self._hear, self._over = terms, hear, over
        self._runs: dict[StreamId, StreamRun] = {}  # the one fed last is the last
        self._changed = threading.Condition()
        self._stopped = False
        self.waited = 0.0

    def get(self, stream: StreamId) -> StreamRun | None:
        return self._runs.get(stream)

    def all(self) -> list[StreamRun]:
        return list(self._runs.values())

    def begin(self, stream: WriteStream, version: int, base: int) -> StreamRun:
        """A run that replaces ends for another only where all do: the rows of a generation come in
        one piece."""
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
        run.start(self._terms.stage_of(stream), context, self._hear, self._ended)
        return run

    def used(self, run: StreamRun) -> None:
        """It is fed now."""
        run.fed_at = time.monotonic()
        with self._changed:
            if self._runs.pop(run.stream.id, None) is not None:
                self._runs[run.stream.id] = run

    def await_end(self, run: StreamRun) -> None:
        self._await(lambda: run.over)

    def end_stale(self, heartbeat: float) -> None:
        """What waits for rows is committed, and no run is as long as a destination may be silent,
        or nearly as long as it may work."""
        now, quiet, work = time.monotonic(), heartbeat / 4, self._terms.stage.allowed
        idle = min(IDLE_SECONDS, quiet)
        longest = min(RUN_SECONDS, quiet, work.timeout_seconds / 2)
        for run in self.all():
            stale = now - run.fed_at > idle or now - run.began > longest
            if stale and not run.ended and not replaces(run.stream):
                run.end()

    def await_all(self) -> None:
        """Each run is bounded by itself: its own time limit, or the destination's silence."""
        self._wait(lambda: not self._runs)

    def fail_all(self, cause: BaseException) -> None:
        """They roll back; what is left after a while is left behind."""
        for run in self.all():
            run.fail(cause)
        until = time.monotonic() + CLOSING_SECONDS
        with self._changed:
            while self._runs and not self._stopped and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, _LOOK))

    def check(self) -> None:
        """Raises :class:`Stopped`."""
        if self._stopped:
            raise Stopped

    # -- the thread that hears

    def stop(self) -> list[StreamRun]:
        """Nobody listens any more: what lives rolls back. For :meth:`join`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            runs = self.all()
        for run in runs:
            run.give_up()
        return runs

    # -- inside

    def _ended(self, run: StreamRun, failure: PenstockError | None) -> None:
        """From the run's thread."""
        try:
            self._over(run, failure)
        finally:
            with self._changed:
                run.over = True
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

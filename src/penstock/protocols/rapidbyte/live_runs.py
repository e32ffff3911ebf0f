"""The runs that live at the same time: few, whatever the number of streams.

Where there is no room the run that was fed least recently ends, which commits it. Every wait ends
once the write is given up. Not here: what is given to a run (``writer``), what it tells
(``hearing``).
"""

import threading
import time
from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.model.catalog import StreamId
from penstock.protocols.contract import WriteStream
from penstock.protocols.rapidbyte.stream_run import StreamRun
from penstock.protocols.rapidbyte.terms import Terms, replaces
from penstock.protocols.rapidbyte.told import Told

IDLE_SECONDS = 60.0  # without rows: what a run has is committed
RUN_SECONDS = 900.0  # the longest run of a stream that need not be one
CLOSING_SECONDS = 30.0  # for all runs to roll back, where the write is given up
_LOOK = 1.0


class Stopped(Exception):
    """The write is given up."""


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
        run = StreamRun(stream, version, base=base, held=self._terms.held, now=now)
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

"""Repeats calls of a store whose database is unreachable for a while, within a bound (L11).

A whole call is repeated, with growing pauses; a call may be one transaction, never a part of one.
The caller defines what is one call, and before a repeat finds out whether a commit without an
answer succeeded (``database``, ``task_keys``). Not here: which failures pass
(``database_url.failed``), how long one statement may wait for its answer (``bounded_connection``,
which uses :meth:`Patience.silence`)."""

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from penstock.errors import Cancelled, StateError

ASKING_SECONDS = 10.0  # while a store is opened, and for commands that query one
RUN_SECONDS = 120.0  # for the open store of a run
SILENT_SECONDS = 40.0  # without a byte of the server while a statement runs
LAST_SECONDS = 3.0  # the same once the bound has passed, or the run was stopped
_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
_SLICE_SECONDS = 0.1

T = TypeVar("T")


class Outage(StateError):
    """A failure of the database that may pass: the call may be repeated, whole."""

    def after(self, seconds: float) -> "OutageTooLong":
        """Returns the error that ends the call after repeating it for so long."""
        text = f"{self.message} (tried again for {seconds:.0f} s)"
        return OutageTooLong(text, code=self.code, hint=self.hint)


class OutageTooLong(StateError):
    """Raised when the database was unreachable for longer than the bound."""


class Patience:
    """Decides how long the calls of one store are repeated; safe for use by several threads.

    ``seconds``: how long, from the call that met the outage first (None: as for a store that is
    opened); ``stopped``: whether the run was
    stopped (Ctrl-C), after which a call is given up in a few seconds; ``log``: takes a sentence
    when an outage begins and when it has ended."""

    def __init__(
        self,
        seconds: float | None = None,
        *,
        stopped: Callable[[], bool] = lambda: False,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.seconds = ASKING_SECONDS if seconds is None else seconds
        self._stopped, self._log = stopped, log
        self._stopped_at: float | None = None
        self._down_since: float | None = None
        self._closed = False
        self._calls: dict[int, float] = {}  # thread -> when its call began

    @property
    def is_down(self) -> bool:
        """Whether the last call of any thread met an outage."""
        return self._down_since is not None

    def silence(self) -> float:
        """Returns for how many seconds a statement may wait for a byte of the server now."""
        down = self._down_since
        late = down is not None and time.monotonic() - down > self.seconds
        return LAST_SECONDS if late or self._is_stopped() else SILENT_SECONDS

    def waiting(self) -> float:
        """Returns for how many seconds the oldest call has been running; 0: none."""
        began = min([*self._calls.values()], default=None)
        return 0.0 if began is None else time.monotonic() - began

    def close(self) -> None:
        """Stops repeating calls from now on."""
        self._closed = True

    def whole(self, call: Callable[[], T]) -> T:
        """Returns what ``call`` returns; repeats it while it raises :class:`Outage`. A call inside
        another one of the same thread is repeated with it. Raises ``StateError`` once the bound has
        passed, and ``Cancelled`` if the run was stopped meanwhile."""
        thread = threading.get_ident()
        if thread in self._calls:
            return call()
        self._calls[thread] = time.monotonic()
        try:
            return self.repeat(call)
        finally:
            del self._calls[thread]

    def repeat(self, call: Callable[[], T]) -> T:
        """Does :meth:`whole`, also inside another call."""
        for attempt in count():
            began = time.monotonic()
            try:
                answer = call()
            except Outage as outage:
                self._pause(attempt, began, outage)
            except OutageTooLong:  # of a call inside this one
                raise
            except StateError:
                self._answered()
                raise
            else:
                self._answered()
                return answer
        raise AssertionError("unreachable")

    def _answered(self) -> None:
        down, self._down_since = self._down_since, None
        if down is not None and not self._closed:
            self._log(f"the state store answers again, after {time.monotonic() - down:.1f} s")

    def _pause(self, attempt: int, began: float, outage: Outage) -> None:
        """Waits before the next attempt. Raises if there is to be none."""
        if self._down_since is None:
            self._down_since = began
            self._log(f"{outage.message}; trying again for up to {self.seconds:.0f} s")
        until = time.monotonic() + _PAUSES[min(attempt, len(_PAUSES) - 1)]
        while True:
            now = time.monotonic()
            if self._is_stopped() and now - (self._stopped_at or now) > LAST_SECONDS:
                raise Cancelled(
                    f"the run was stopped while it waited: {outage.message}", hint=outage.hint
                )
            down = now - (self._down_since or began)
            if self._closed or down > self.seconds:
                raise outage.after(down)
            if now >= until:
                return
            time.sleep(min(_SLICE_SECONDS, until - now))

    def _is_stopped(self) -> bool:
        if self._stopped_at is None and self._stopped():
            self._stopped_at = time.monotonic()
        return self._stopped_at is not None

"""Renews the pipeline's lease in the store and the lease file in the mailbox, in threads (L11,
L12).

Threads, because the driver's main thread may wait for a long Spark job. Neighbour:
``engine.sync.sync`` calls :meth:`LeaseHeartbeat.check` before each step that commits.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.engine.channel.mailbox import BEAT_SECONDS, Mailbox
from penstock.errors import Cancelled, LeaseLost, PenstockError
from penstock.store.contract import Lease, Store

RENEW_SECONDS = 15.0
LEASE_TTL = 60.0  # seconds after which another run may take a silent holder's pipeline over
STUCK_SECONDS = 240.0  # of one call of the store, which gives up by itself well before
_POLL_SECONDS = 0.2


class LeaseHeartbeat:
    """Implements ``engine.sync.ports.Time`` and keeps the lease while it is entered as a context
    manager, from the moment the lease is acquired. :meth:`beat` adds the mailbox, in a second
    thread: a store that hangs must not stop lanes before the lease itself is in doubt."""

    def __init__(self, store: Store, lease: Lease, cancel: threading.Event) -> None:
        self._store, self._lease, self._cancel = store, lease, cancel
        self._stop = threading.Event()
        self._renewed: float | None = None
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._renewed = time.monotonic()
        self._begin(self._renew)
        return self

    def beat(self, mailbox: Mailbox) -> None:
        """Creates the mailbox and rewrites its lease file every :data:`BEAT_SECONDS` until the
        end."""
        mailbox.create()
        self._begin(lambda: self._beat(mailbox))

    def _begin(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as e:  # raised again by check()
                self._failure = e

        thread = threading.Thread(target=run, name="pulse", daemon=True)
        self._threads.append(thread)
        thread.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=BEAT_SECONDS * 2)

    def _beat(self, mailbox: Mailbox) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            # The folder may be writable again later; lanes decide how long they wait.
            with suppress(OSError):
                mailbox.beat()

    def _renew(self) -> None:
        """Renews the lease until the end, or until a call of another thread is stuck in the store:
        a run that makes no progress must not keep the pipeline for ever."""
        pause = RENEW_SECONDS
        while not self._stop.wait(pause):
            stuck = self._store.waiting()
            if stuck > STUCK_SECONDS:
                self._failure = _unreachable(f"a call to it has not returned for {stuck:.0f} s")
                return
            began = time.monotonic()  # after a long call, nothing newer is known about the lease
            try:
                self._store.renew(self._lease, LEASE_TTL)
                self._renewed = began
            except LeaseLost as e:
                self._failure = e
                return
            except PenstockError as e:
                # The store may answer again before the lease ends.
                if self._is_in_doubt():
                    self._failure = _unreachable(e.message)
                    return
            pause = max(RENEW_SECONDS - (time.monotonic() - began), 0.0)

    def check(self) -> None:
        """Raises ``LeaseLost`` where the lease is lost or the store has been unreachable for too
        long, ``Cancelled`` where the run was stopped, and any other error that ended one of the
        threads. Waits while the lease may have expired: nothing is committed until it is
        renewed."""
        self._raise_failure()
        while not self._stop.is_set() and self._is_in_doubt():
            self._cancel.wait(_POLL_SECONDS)
            self._raise_failure()

    def _is_in_doubt(self) -> bool:
        """Whether the lease may have expired since its last renewal."""
        return self._renewed is not None and time.monotonic() - self._renewed > LEASE_TTL

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._cancel.is_set():
            raise stopped()

    def now(self) -> float:
        """Returns the monotonic clock, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits, at most until a cancellation."""
        self._cancel.wait(seconds) if not self._cancel.is_set() else time.sleep(seconds)


def stopped() -> Cancelled:
    """Returns the error of a cancelled run."""
    return Cancelled("the run was stopped", hint="run again: what is sealed is kept")


def _unreachable(why: str) -> LeaseLost:
    return LeaseLost(
        f"the state store could not be reached for longer than this run may be silent: {why}",
        code="state.unreachable",
        hint="see that the store answers, then give the same command again: what is committed is"
        " kept",
    )

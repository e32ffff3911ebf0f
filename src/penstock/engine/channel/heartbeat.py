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


class LeaseHeartbeat:
    """Implements ``engine.sync.ports.Time`` and keeps the lease while it is entered as a context
    manager, from the moment the lease is acquired. :meth:`beat` adds the mailbox, in a second
    thread: a store that hangs must not stop lanes before the lease itself is in doubt."""

    def __init__(self, store: Store, lease: Lease, cancel: threading.Event) -> None:
        self._store, self._lease, self._cancel = store, lease, cancel
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
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
        renewed = time.monotonic()
        while not self._stop.wait(RENEW_SECONDS):
            try:
                self._store.renew(self._lease, LEASE_TTL)
                renewed = time.monotonic()
            except LeaseLost as e:
                self._failure = e
                return
            except PenstockError as e:
                # The store may answer again before the lease ends.
                if time.monotonic() - renewed > LEASE_TTL:
                    self._failure = LeaseLost(
                        f"the state store could not be reached for {LEASE_TTL:.0f} s: {e}"
                    )
                    return

    def check(self) -> None:
        """Raises ``LeaseLost`` where the lease is lost or the store has been out of reach for
        :data:`LEASE_TTL` seconds, ``Cancelled`` where the run was stopped, and what else ended one
        of the threads."""
        if self._failure is not None:
            raise self._failure
        if self._cancel.is_set():
            raise Cancelled("the run was stopped", hint="run again: what is sealed is kept")

    def now(self) -> float:
        """Returns the monotonic clock, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Waits, until a cancellation at most."""
        self._cancel.wait(seconds) if not self._cancel.is_set() else time.sleep(seconds)

"""The driver's pulse: renews the lease in the store and the lease file of the mailbox (L11, L12).

A thread, because the driver's own thread may sit in a long Spark job. Neighbour: ``engine.sync``
asks :meth:`Pulse.check` before each step that commits.
"""

import threading
import time
from types import TracebackType
from typing import Self

from penstock.engine.mailbox import BEAT_SECONDS, Mailbox
from penstock.errors import Cancelled, LeaseLost, PenstockError
from penstock.state.contract import Lease, Store

LEASE_TTL = 60.0  # seconds after which another run may take a silent holder's pipeline over


class Pulse:
    """``engine.sync.Time`` with a heart: a context manager around a sync."""

    def __init__(self, store: Store, lease: Lease, mailbox: Mailbox) -> None:
        self._store, self._lease, self._mailbox = store, lease, mailbox
        self._stop = threading.Event()
        self._cancel = threading.Event()
        self._failure: PenstockError | None = None
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> Self:
        self._mailbox.create()
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=BEAT_SECONDS * 2)

    def _beat(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(BEAT_SECONDS):
            try:
                self._mailbox.beat()
                self._store.renew(self._lease, LEASE_TTL)
                renewed = time.monotonic()
            except LeaseLost as e:
                self._failure = e
                return
            except (PenstockError, OSError) as e:
                # A store or a disk that does not answer may come back; the lease decides how long.
                if time.monotonic() - renewed > LEASE_TTL:
                    self._failure = LeaseLost(
                        f"the state store could not be reached for {LEASE_TTL:.0f} s: {e}"
                    )
                    return

    def cancel(self) -> None:
        """Ctrl-C or SIGTERM: the sync stops at its next step."""
        self._cancel.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._cancel.is_set():
            raise Cancelled("the run was stopped", hint="run again: what is sealed is kept")

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._cancel.wait(seconds) if not self._cancel.is_set() else time.sleep(seconds)

"""Sets the timeouts of a guest's answers, and lets another thread read how much time a guest used.

A guest that sleeps, or polls a silent peer, cannot be interrupted; its owner stops waiting and
abandons its thread. Neighbours: ``probe`` and ``guest_thread`` wait; ``errors`` builds the error of
an abandoned wait.
"""

import time

import msgspec

from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.guest.session import ComponentSession
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.wasm.contract import Trap, TrapKind

LONGEST_CHECK = 600.0
"""Seconds, like ``LONGEST_DISCOVER``."""
LONGEST_DISCOVER = 3600.0
ABANDON_SECONDS = 2.0
"""Seconds for an abandoned guest to end; then its thread is left running."""
POLL_SECONDS = 0.5
"""Seconds between two checks of a guest's clock."""
_SLACK = 1.0
"""Seconds after its limit within which the guest's own clock normally ends it."""


class AnswerTimeout(msgspec.Struct, frozen=True):
    """The timeout of one answer, in seconds. ``key``: the pipeline's key that raises it; None:
    there is none."""

    seconds: float
    key: str | None = None

    @staticmethod
    def of(timeouts: RunTimeouts, most: float) -> "AnswerTimeout":
        """Returns the pipeline's timeout (``timeouts.total``, else ``timeouts.start``), at most
        ``most``."""
        key = "timeouts.start" if timeouts.total is None else "timeouts.total"
        asked = timeouts.start if timeouts.total is None else timeouts.total
        return AnswerTimeout(asked, key) if asked < most else AnswerTimeout(most)


class Clock:
    """Reads a guest's used time from another thread. ``session``: set once it is open; until then
    all elapsed time counts."""

    def __init__(self, stage: Stage) -> None:
        self.session: ComponentSession | None = None
        self._limit = stage.allowed.timeout_seconds
        self._began = time.monotonic()

    def used(self) -> float:
        """Returns the seconds of guest work so far."""
        session = self.session
        return time.monotonic() - self._began if session is None else session.seconds

    def over_limit(self) -> Trap | None:
        """Returns the trap of a guest that exceeded its time limit and was not ended by its own
        clock, which cannot interrupt a sleeping system call; None: it is within its limit."""
        if self.used() <= self._limit + _SLACK:
            return None
        return Trap(TrapKind.timeout, f"it worked or slept longer than {self._limit:g} seconds")


def waiting_for(host: HostFunctions) -> str:
    """Returns the end of a message that names the peer a guest waits for; empty where it waits for
    none."""
    peer = host.awaited_peer
    return "" if peer is None else f", while it waited for {peer}"

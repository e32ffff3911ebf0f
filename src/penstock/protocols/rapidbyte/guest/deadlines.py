"""How long a guest is waited for, and its clock as another thread sees it.

One that sleeps, or polls a silent peer, cannot be interrupted, but it can be given up. Neighbours:
``probe`` and ``guest_thread`` wait; ``errors`` says why nobody waits any more.
"""

import time

import msgspec

from penstock.protocols.rapidbyte.guest.host import Host
from penstock.protocols.rapidbyte.guest.session import Session
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.runtimes.contract import Timeouts
from penstock.runtimes.wasm.contract import Trap, TrapKind

LONGEST_CHECK = 600.0
LONGEST_DISCOVER = 3600.0
LETTING_GO = 2.0
"""Seconds that a guest which was given up may take to notice that nobody listens any more."""
LOOK = 0.5
_SLACK = 1.0
"""Seconds beyond its limit in which the guest's own clock ends it."""


class Within(msgspec.Struct, frozen=True):
    """Seconds until an answer must have come. ``key``: what a pipeline raises for more; None:
    nothing does."""

    seconds: float
    key: str | None = None

    @staticmethod
    def of(timeouts: Timeouts, most: float) -> "Within":
        """As a pipeline says, and at most as long as without one."""
        key = "timeouts.start" if timeouts.total is None else "timeouts.total"
        asked = timeouts.start if timeouts.total is None else timeouts.total
        return Within(asked, key) if asked < most else Within(most)


class Clock:
    """What a guest has used of its time, for another thread than its own. ``session``: set once it
    is there; until then all time is its."""

    def __init__(self, stage: Stage) -> None:
        self.session: Session | None = None
        self._limit = stage.allowed.timeout_seconds
        self._began = time.monotonic()

    def used(self) -> float:
        session = self.session
        return time.monotonic() - self._began if session is None else session.seconds

    def overworked(self) -> Trap | None:
        """It sleeps in a call of the system's, where its own clock does not reach it."""
        if self.used() <= self._limit + _SLACK:
            return None
        return Trap(TrapKind.timeout, f"it worked or slept longer than {self._limit:g} seconds")


def waiting_for(host: Host) -> str:
    peer = host.waits_for
    return "" if peer is None else f", while it waited for {peer}"

"""Decides who may take a pipeline's lock, and waits for a holder that cannot be checked (L12).

The rules, for every store alike. A holder whose process is checked and lives keeps the lock,
however old it is. A holder whose process is checked and ended loses it at once. Any other (on
another machine, in another container, before the last start of this machine) is dead when its lock
was not renewed for one full length while somebody watched, by the watcher's monotonic clock. Times
are never compared: the clock of the holder, of the watcher and of the store may jump. Not here:
whether a process lives (``lock_holder``), storage (``sql``, ``memory``), renewing
(``engine.channel.heartbeat``).
"""

import random
import shlex
import time
from collections.abc import Callable

from penstock.errors import Cancelled, Locked
from penstock.store.contract import Holder, Lease, PipelineLock, Store

_LOOKS = 60  # at a lock, during its length

Notice = Callable[[str], None]


def may_take(found: PipelineLock, over: PipelineLock | None) -> bool:
    """Returns whether another run may take the lock ``found``. ``over``: the lock that was watched,
    or that a user breaks, whose holder cannot be checked."""
    if found.alive is not None:
        return not found.alive
    return over is not None and (over.token, over.renewal) == (found.token, found.renewal)


def renewal(until: float) -> float:
    """Returns what is stored for a renewal: ``until``, the time at which earlier versions of
    Penstock take the lock over, minus a random part of a second. So it differs from earlier
    renewals even if the clock stands still."""
    return until - random.random()


def unlock_command(pipeline: str, *options: str) -> str:
    """Returns the command that breaks the pipeline's lock. ``pipeline``: its name or its file."""
    return shlex.join(["penstock", "state", "unlock", pipeline, *options])


def locked(pipeline: str, lock: PipelineLock, unlock: str | None = None) -> Locked:
    """Makes the error for a pipeline that another run has. ``unlock``: as of
    :func:`unlock_command`; None: by the pipeline's name."""
    unlock = unlock or unlock_command(pipeline)
    has, pid = described(lock.holder), lock.holder.pid
    if lock.alive:
        return Locked(
            f"pipeline {pipeline!r} is being run by {has}: its process lives",
            code="state.locked",
            hint=f"wait until that run ends, or stop it: `kill {pid}`. A lock whose process has "
            f"ended is broken by the next run; `{unlock}` does so now",
        )
    return Locked(
        f"pipeline {pipeline!r} is being run by {has}: its process cannot be checked from here",
        code="state.locked",
        hint="wait until that run ends, or stop it where it runs. A run takes the lock over once "
        f"it was not renewed for {lock.seconds:g} s; if that process is gone for certain, "
        f"`{unlock}` breaks the lock at once",
    )


def described(holder: Holder) -> str:
    """Returns who has a lock, for messages."""
    return f"{holder.name} (process {holder.pid}, run {holder.run}) since {holder.started_at}"


def take(
    store: Store,
    pipeline: str,
    holder: Holder,
    ttl: float,
    *,
    unlock: str | None = None,
    waiting: Notice | None = None,
    took: Notice | None = None,
    stopped: Callable[[float], bool] | None = None,
) -> Lease:
    """Takes the pipeline's lease like ``Store.acquire``, and waits for a holder that cannot be
    checked: until it gives the lock back, renews it, or fails to renew it for one full length of
    its lease. Raises ``Locked`` if the holder lives.

    ``unlock``: as in :func:`locked`. ``waiting`` receives what is waited for, ``took`` from whom
    the lock was taken over after a wait. ``stopped`` waits so many seconds and returns whether the
    wait is over (then ``Cancelled`` is raised)."""
    over: PipelineLock | None = None
    while True:
        try:
            lease = store.acquire(pipeline, holder, ttl, over)
        except Locked:
            over = _watched(store, pipeline, over, unlock, waiting or _no_notice, stopped or _slept)
            continue
        if over is not None and took is not None:
            took(
                f"the lock of pipeline {pipeline!r} was taken over from {described(over.holder)}: "
                f"it was not renewed for {over.seconds:g} s, so that process counts as gone"
            )
        return lease


def _watched(
    store: Store,
    pipeline: str,
    before: PipelineLock | None,
    unlock: str | None,
    waiting: Notice,
    stopped: Callable[[float], bool],
) -> PipelineLock | None:
    """Watches the pipeline's lock. Returns it if it was not renewed for its length; None once it is
    free. Raises ``Locked`` if it is renewed, or its holder lives. ``before``: the lock that was
    watched before and is still held."""
    first = store.lock(pipeline)
    if first is None or first.alive is False:
        return None
    if first.alive or before is not None:  # renewed, or another's, in the moment of the take-over
        raise locked(pipeline, first, unlock)
    step, quiet, seen_at = first.seconds / _LOOKS, 0.0, time.monotonic()
    waiting(
        f"waiting up to {first.seconds:g} s: {described(first.holder)} has the lock of pipeline "
        f"{pipeline!r}, and its process cannot be checked from here. If the lock is not renewed in "
        f"that time, this run takes it over; `{unlock or unlock_command(pipeline)}` breaks it now"
    )
    while quiet < first.seconds:
        if stopped(step):
            raise Cancelled("the run was stopped", hint="nothing was read or written")
        now = time.monotonic()
        # a suspended watcher counts no more than this: the holder may have been suspended too
        quiet, seen_at = quiet + min(now - seen_at, 2 * step), now
        found = store.lock(pipeline)
        if found is None or found.alive is False:
            return None
        if not may_take(found, first):
            raise locked(pipeline, found, unlock)
    return first


def _no_notice(text: str) -> None:
    del text


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False

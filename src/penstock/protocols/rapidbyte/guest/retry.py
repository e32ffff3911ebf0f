"""Decides whether a failed stream is retried, and after what delay; the same for every role.

A trap, a timeout or a bad answer is never retried: only a connector's own error shows that a retry
is safe. Source: the protocol, section 5 (retry metadata).
"""

import random

from penstock.protocols.rapidbyte.guest.events import RunEnded
from penstock.protocols.rapidbyte.wire.messages import ConnectorFault

_BASE_MS = {"fast": 100, "normal": 1000, "slow": 5000}
_LONGEST_MS = 60_000
_LONGEST_ASKED_MS = 3_600_000
"""The longest ``retry_after_ms`` of a connector: every wait has a bound (L11)."""


def retry_after(ended: RunEnded, attempt: int, allowed: int) -> float | None:
    """Returns the seconds until a failed run may be retried; None: never. ``attempt``: the failed
    one, from 1; ``allowed``: the maximum number of retries."""
    if ended.fault is None or attempt > allowed or not may_retry(ended.fault, ended.host_fault):
        return None
    return delay(ended.fault, attempt, random.random())


def may_retry(fault: ConnectorFault, host_fault: ConnectorFault | None = None) -> bool:
    """Returns whether a fault is retryable, safe to retry, and before any commit. ``host_fault``:
    the first error that the host gave the connector; if that is permanent (a denied host), there is
    no retry, whatever the connector's own error."""
    if host_fault is not None and not host_fault.retryable:
        return False
    uncommitted = fault.commit_state in (None, "before_commit")
    return fault.retryable and fault.safe_to_retry and uncommitted


def delay(fault: ConnectorFault, attempt: int, spread: float) -> float:
    """Returns the seconds before attempt ``attempt + 1`` (``attempt`` from 1). ``spread``: a random
    number from 0 to 1. The delay is 1 to 2 times the connector's request, or half to the whole of
    the doubling delay of its backoff class, at most a minute."""
    if fault.retry_after_ms is not None:
        asked = min(fault.retry_after_ms, _LONGEST_ASKED_MS)
        return asked * (1 + spread) / 1000
    base = _BASE_MS.get(fault.backoff_class, _BASE_MS["normal"])
    whole = min(base * 2 ** min(attempt - 1, 16), _LONGEST_MS)
    return whole * (0.5 + spread / 2) / 1000

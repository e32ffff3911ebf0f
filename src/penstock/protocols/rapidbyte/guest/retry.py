"""When a stream is tried again, and after how long; the same for every role.

Source: the protocol, section 5 (retry metadata). A trap, a timeout or a broken answer is never
tried again: nothing says that it would be safe.
"""

import random

from penstock.protocols.rapidbyte.guest.events import Ended
from penstock.protocols.rapidbyte.wire.messages import ConnectorFault

_BASE_MS = {"fast": 100, "normal": 1000, "slow": 5000}
_LONGEST_MS = 60_000
_LONGEST_ASKED_MS = 3_600_000
"""However long a connector asks to be left alone: every wait has a bound."""


def retry_after(told: Ended, attempt: int, allowed: int) -> float | None:
    """Seconds until it may be tried again; None: never."""
    if told.fault is None or attempt > allowed or not may_retry(told.fault, told.told):
        return None
    return delay(told.fault, attempt, random.random())


def may_retry(fault: ConnectorFault, host_fault: ConnectorFault | None = None) -> bool:
    """Retryable, safe, and nothing may have been committed. ``host_fault``: what the host told the
    connector first; where that is for good (a denied host), the connector's word does not make it
    pass."""
    if host_fault is not None and not host_fault.retryable:
        return False
    uncommitted = fault.commit_state in (None, "before_commit")
    return fault.retryable and fault.safe_to_retry and uncommitted


def delay(fault: ConnectorFault, attempt: int, spread: float) -> float:
    """Seconds before try ``attempt + 1`` (``attempt`` from 1). ``spread``: a number from 0 to 1
    that the caller draws; the delay lies between it and twice what the connector asked for, or
    between half and the whole of its class's doubling delay, at most a minute."""
    if fault.retry_after_ms is not None:
        asked = min(fault.retry_after_ms, _LONGEST_ASKED_MS)
        return asked * (1 + spread) / 1000
    base = _BASE_MS.get(fault.backoff_class, _BASE_MS["normal"])
    whole = min(base * 2 ** min(attempt - 1, 16), _LONGEST_MS)
    return whole * (0.5 + spread / 2) / 1000

"""The lease is renewed while the run goes on, and no longer (L11, L12)."""

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.engine.channel import heartbeat
from penstock.engine.channel.heartbeat import LeaseHeartbeat
from penstock.errors import Cancelled, LeaseLost, StateError
from penstock.store.contract import Lease
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore


class SlowStore(MemoryStore):
    """``away``: no renewal succeeds; ``stuck``: for how long a call of another thread lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.stuck, self.renewed = False, 0.0, 0

    def waiting(self) -> float:
        return self.stuck

    def renew(self, lease: Lease, ttl: float) -> None:
        if self.away:
            raise StateError("no answer", code="state.unreachable")
        super().renew(lease, ttl)
        self.renewed += 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowStore]:
    monkeypatch.setattr(heartbeat, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(heartbeat, "LEASE_TTL", 0.5)
    yield SlowStore()


def failure_of(pulse: LeaseHeartbeat, seconds: float = 5.0) -> BaseException:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            pulse.check()
        except BaseException as e:
            return e
        time.sleep(0.01)
    raise AssertionError("the run may go on")


def test_l11_a_main_thread_that_is_stuck_in_the_store_keeps_no_lease(store: SlowStore) -> None:
    lease = store.acquire("shop", this_holder("r"), 60)
    with LeaseHeartbeat(store, lease, threading.Event()) as pulse:
        time.sleep(0.2)
        assert store.renewed > 1
        store.stuck = heartbeat.STUCK_SECONDS + 1
        failure = failure_of(pulse)
        assert isinstance(failure, LeaseLost) and failure.code == "state.unreachable"
        assert "not returned" in failure.message
        before = store.renewed
        time.sleep(0.2)
        assert store.renewed == before


def test_l12_nothing_is_committed_while_the_lease_may_be_anothers(store: SlowStore) -> None:
    """An outage that is longer than the lease: who asks whether it may go on waits."""
    lease = store.acquire("shop", this_holder("r"), 60)
    with LeaseHeartbeat(store, lease, threading.Event()) as pulse:
        time.sleep(0.1)
        pulse.check()
        renew = threading.Event()
        store.renew = lambda *_: renew.wait(5)  # type: ignore[method-assign,assignment]
        time.sleep(0.7)
        checked = threading.Thread(target=pulse.check)
        checked.start()
        checked.join(0.3)
        assert checked.is_alive()
        renew.set()
        checked.join(2)
        assert not checked.is_alive()


def test_l11_an_outage_beyond_the_lease_ends_the_run(store: SlowStore) -> None:
    lease = store.acquire("shop", this_holder("r"), 60)
    cancel = threading.Event()
    with LeaseHeartbeat(store, lease, cancel) as pulse:
        store.away = True
        failure = failure_of(pulse)
        assert isinstance(failure, LeaseLost) and failure.hint is not None
        assert "no answer" in failure.message and "the same command again" in failure.hint
        cancel.set()


def test_l11_a_stop_ends_the_wait_for_a_renewal(store: SlowStore) -> None:
    lease = store.acquire("shop", this_holder("r"), 60)
    cancel = threading.Event()
    with LeaseHeartbeat(store, lease, cancel) as pulse:
        store.renew = lambda *_: cancel.wait(5)  # type: ignore[method-assign,assignment]
        time.sleep(0.7)
        threading.Timer(0.2, cancel.set).start()
        with pytest.raises(Cancelled):
            pulse.check()

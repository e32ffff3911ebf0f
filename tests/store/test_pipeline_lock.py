"""Who may take a pipeline's lock, and how long a run waits (L12): clocks that are wrong or jump,
holders that cannot be checked, and real processes that were killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from penstock.errors import Cancelled, LeaseLost, Locked
from penstock.store import database
from penstock.store.contract import Lease, Store
from penstock.store.lock_holder import boot, this_holder
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.pipeline_lock import take, unlock_command
from penstock.store.sql import SqlStore

pytestmark = pytest.mark.dear

LENGTH = 0.6  # of a lease, in seconds; 60 in a run
YEAR = 365 * 86400

FAKETIME = next(
    (p for p in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), Path("libfaketime")
)

HOLD = """
import sys, time
from msgspec import structs
from penstock.errors import PenstockError
from penstock.store.lock_holder import boot, this_holder
from penstock.store.open import open_store
place, far, beats = sys.argv[1], sys.argv[2] == "far", sys.argv[3] == "beats"
length = 30 if beats else 0.6  # a renewal that is late on a busy machine is none that is missing
store, holder = open_store(place), this_holder("held")
if far:  # as in a container, or on another machine
    holder = structs.replace(holder, boot="elsewhere")
lease = store.acquire("shop", holder, length)
print(time.time(), flush=True)
while beats:
    time.sleep(0.15)
    store.renew(lease, length)
sys.stdin.readline()
try:
    store.new_epoch(lease, 0)
    print("wrote", flush=True)
except PenstockError as error:
    print(error.code, flush=True)
"""


@contextmanager
def holding(place: str, *, far: bool, clock: str = "", beats: bool = False) -> Iterator[int]:
    """A real process that has the lock, by a clock of its own; killed at the end. ``beats``: it
    renews it. Yields its process id."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if clock:
        if not FAKETIME.exists():
            pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
        environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": clock}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, place, "far" if far else "near", "beats" if beats else ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    try:
        shown = float(child.stdout.readline())
        if clock:
            assert abs(shown - time.time()) > YEAR / 2, "its clock is not another one"
        yield child.pid
    finally:
        child.kill()
        child.wait(60)
        child.stdin.close()
        child.stdout.close()


def killed(place: str, *, far: bool, clock: str) -> None:
    with holding(place, far=far, clock=clock) as pid:
        os.kill(pid, signal.SIGKILL)


@contextmanager
def opened(place: str) -> Iterator[SqlStore]:
    store = open_store(place)
    assert isinstance(store, SqlStore)
    try:
        yield store
    finally:
        store.close()


def waits(store: Store, run: str = "next") -> tuple[Lease, float, list[str]]:
    """The lease, how long it was waited for, and what was shown meanwhile."""
    shown: list[str] = []
    began = time.monotonic()
    lease = take(
        store, "shop", this_holder(run), 60, waiting=shown.append, took=shown.append
    )  # fmt: skip
    return lease, time.monotonic() - began, shown


# -- a holder that was killed


@pytest.mark.parametrize("clock", ["+1y", "-1y"])
def test_L12_a_killed_holder_of_a_wrong_clock_is_taken_over(place: str, clock: str) -> None:
    """It cannot be checked: its lock lasts for its length on the clock of the one who waits. The
    first one locked the pipeline for a year before."""
    killed(place, far=True, clock=clock)
    with opened(place) as store:
        lease, seconds, shown = waits(store)
        assert LENGTH <= seconds < LENGTH * 20
        assert store.new_epoch(lease, 0) == 1
    assert shown[0].startswith("waiting up to 0.6 s: ") and "run held" in shown[0]
    assert "cannot be checked from here" in shown[0]
    assert "`penstock state unlock shop` breaks it now" in shown[0]
    assert "was taken over from" in shown[1] and "run held" in shown[1]


@pytest.mark.parametrize("clock", ["+1y", "-1y"])
def test_L12_a_killed_holder_that_can_be_checked_is_taken_over_at_once(
    tmp_path: Path, clock: str
) -> None:
    place = str(tmp_path / "state.db")
    killed(place, far=False, clock=clock)
    with opened(place) as store:
        _, seconds, shown = waits(store)
    assert shown == [], f"it was waited for, {seconds:.1f} s"


def test_L12_rows_of_an_earlier_penstock_with_a_wrong_clock_lock_nothing_for_long(
    place: str,
) -> None:
    """It stored no length, and compared times: a year ahead."""
    with opened(place) as store:
        store.acquire("shop", this_holder("r"), 60)
    holder = '{"name":"me@far","pid":7,"boot":"b","started_at":"2027-01-01T00:00:00Z","run":"old"}'
    db = database.open_postgres(place) if "://" in place else database.open_sqlite(Path(place))
    with db.writing() as conn:
        conn.execute(
            text("UPDATE penstock_pipelines SET token = 't', holder = :holder, lease_until = :at"),
            {"holder": holder, "at": time.time() + YEAR},
        )
    db.close()
    with opened(place) as store:
        seen = store.lock("shop")
        assert seen is not None and (seen.alive, seen.seconds) == (None, 60)
        with pytest.raises(Locked) as refused:
            store.acquire("shop", this_holder("next"), 60)
        assert "not renewed for 60 s" in (refused.value.hint or "")
        store.acquire("shop", this_holder("next"), 60, seen)


# -- a holder that lives


@pytest.mark.parametrize("clock", ["", "+1y", "-1y", "2000-01-01 00:00:00"])
def test_L12_a_holder_that_renews_is_never_taken_over(tmp_path: Path, clock: str) -> None:
    """Wherever its clock is, and where it stands still (the last one). A waiter sees it soon."""
    place = str(tmp_path / "state.db")
    with holding(place, far=True, clock=clock, beats=True) as pid, opened(place) as store:
        began = time.monotonic()
        with pytest.raises(Locked) as refused:
            take(store, "shop", this_holder("next"), 60)
        assert time.monotonic() - began < 20, "the whole length was waited for"
        assert f"process {pid}, run held" in refused.value.message
        assert "`penstock state unlock shop`" in (refused.value.hint or "")


def test_L12_a_holder_that_lives_keeps_the_lock_however_old_it_is(place: str) -> None:
    """It is stopped (SIGSTOP), as by a debugger, and renews nothing for many lengths; and the
    store's time is long past its own."""
    with holding(place, far=False, clock="-1y") as pid, opened(place) as store:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(LENGTH * 3)
        with pytest.raises(Locked) as refused:
            take(store, "shop", this_holder("next"), 60)
        assert "its process lives" in refused.value.message
        assert f"`kill {pid}`" in (refused.value.hint or "")
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert waits(store)[2] == [], "a dead holder that can be checked was waited for"


def test_L12_a_lock_that_is_given_back_is_taken_at_once(tmp_path: Path) -> None:
    with opened(str(tmp_path / "state.db")) as store:
        far = msgspec.structs.replace(this_holder("r"), boot="elsewhere")
        held = store.acquire("shop", far, 60)

        def stopped(seconds: float) -> bool:
            store.release(held)
            return False

        began = time.monotonic()
        take(store, "shop", this_holder("next"), 60, stopped=stopped)
        assert time.monotonic() - began < 5


def test_L11_a_wait_ends_when_the_run_is_stopped(tmp_path: Path) -> None:
    with opened(str(tmp_path / "state.db")) as store:
        store.acquire("shop", msgspec.structs.replace(this_holder("r"), boot="elsewhere"), 60)
        with pytest.raises(Cancelled):
            take(store, "shop", this_holder("next"), 60, stopped=lambda _: True)


def test_L12_a_watcher_that_was_suspended_does_not_count_that_time() -> None:
    """A suspended machine may have suspended the holder, too: it gets the time to renew."""
    store = MemoryStore(alive=lambda _: None)
    held = store.acquire("shop", this_holder("held"), 60)
    looks = 0

    def stopped(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        time.sleep(0.001)
        if looks == 3:
            store.renew(held, 60)
        return False

    clock = (n * 100.0 for n in range(1000))  # 100 s pass between two looks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.store.pipeline_lock.time.monotonic", lambda: next(clock))
        with pytest.raises(Locked):
            take(store, "shop", this_holder("next"), 60, stopped=stopped)
    assert looks == 3


def test_L12_the_clock_of_the_one_who_waits_may_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back and forth while it waits, and while the holder renews."""
    jumps = (1e9 + (n % 2) * YEAR for n in range(10**6))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    with opened(str(tmp_path / "state.db")) as store:
        far = msgspec.structs.replace(this_holder("r"), boot="elsewhere")
        held = store.acquire("shop", far, LENGTH)

        def stopped(seconds: float) -> bool:
            time.sleep(seconds)
            with suppress(LeaseLost):
                store.renew(held, LENGTH)
            return False

        with pytest.raises(Locked):
            take(store, "shop", this_holder("next"), 60, stopped=stopped)
        _, seconds, _ = waits(store)
        assert LENGTH <= seconds < LENGTH * 20


# -- this process


def test_L12_a_lock_that_this_process_could_not_give_back_is_its_own_again(place: str) -> None:
    """The store was gone at the end of a run; the process lives on, as a scheduler's does."""
    with opened(place) as store:
        lease = store.acquire("shop", this_holder("r"), 60)
        token = lease.token
        lost = open_store(place)
        lost.close()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(database.Database, "writing", _unreachable)
            with pytest.raises(OSError, match="gone"):
                store.release(lease)
        assert store.acquire("shop", this_holder("next"), 60).token != token


@contextmanager
def _unreachable(self: database.Database) -> Iterator[None]:
    del self
    raise OSError("gone")
    yield


def test_the_command_runs_as_printed() -> None:
    assert unlock_command("shop") == "penstock state unlock shop"
    assert unlock_command("the shop's", "--home", "/a b") == (
        "penstock state unlock 'the shop'\"'\"'s' --home '/a b'"
    )


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs unshare(1)")
def test_L12_a_real_container_with_another_clock_is_killed(tmp_path: Path) -> None:
    """A process-id namespace of its own, a clock a year ahead, SIGKILL: nobody can check it."""
    if not FAKETIME.exists():
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    place = str(tmp_path / "state.db")
    child = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", HOLD,
         place, "near", ""],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME": "+1y"},
    )  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    assert float(child.stdout.readline()) > time.time() + YEAR / 2
    child.kill()
    child.wait(10)  # its child has the signal by then; the end of its input would let it go on
    child.communicate()
    with opened(place) as store:
        seen = store.lock("shop")
        assert seen is not None and seen.alive is None and seen.holder.boot != boot()
        assert seen.renewal > time.time() + YEAR / 2
        lease, seconds, shown = waits(store)
        assert LENGTH <= seconds < LENGTH * 20 and len(shown) == 2
        assert store.new_epoch(lease, 0) == 1

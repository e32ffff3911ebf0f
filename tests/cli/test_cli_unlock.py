"""``penstock state unlock``: whose lock may be broken, and the command in the error of a locked
pipeline as it runs as printed (L12)."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cli_harness import SOURCE, Cli
from msgspec import structs

from penstock.config.home import Home
from penstock.errors import LeaseLost
from penstock.store.contract import Holder, Lease, Store
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store


@contextmanager
def opened(cli: Cli, place: str | None = None) -> Iterator[Store]:
    store = open_store(place or Home(cli.home).state_url())
    try:
        yield store
    finally:
        store.close()


def far(run: str = "01FAR") -> Holder:
    """In another container: not to be checked from here."""
    return structs.replace(this_holder(run, "2026-11-20T10:00:00Z"), boot="elsewhere", pid=1)


def ended() -> Holder:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(60)
    return structs.replace(this_holder("01ENDED"), pid=child.pid)


def lost(store: Store, lease: Lease) -> bool:
    try:
        store.new_epoch(lease, 0)
    except LeaseLost:
        return True
    return False


@pytest.mark.parametrize(("holder", "checked"), [(ended, True), (far, False)])
def test_L12_a_dead_lock_is_broken_and_its_holder_commits_nothing_more(
    shop: Cli, holder: "type[Holder]", checked: bool
) -> None:
    with opened(shop) as store:
        held = store.acquire("shop", had := holder(), 60)
        told = shop("state", "unlock", "shop", "--json")
        assert told.code == 0
        assert told.json == {
            "pipeline": "shop", "unlocked": True, "checked": checked,
            "holder": {"name": had.name, "pid": had.pid, "run": had.run,
                       "started_at": had.started_at},
        }  # fmt: skip
        assert lost(store, held)
        assert store.lock("shop") is None
        store.release(held)  # and it takes away nobody else's
    assert shop("state", "reset", "shop", "--json").code == 0


def test_a_run_that_cannot_be_checked_is_not_shown_as_running_for_sure(shop: Cli) -> None:
    with opened(shop) as store:
        lease = store.acquire("shop", far(), 60)
        store.start_run(lease, "01FAR", "2026-11-20T10:00:00Z")
    told = shop("runs", "shop")
    assert told.code == 0 and "running?" in told.out
    text = " ".join(told.out.split())
    assert "process 1, run 01FAR) since 2026-11-20T10:00:00Z" in text
    assert "`penstock state unlock shop`" in text
    found = {r["run"]: r for r in shop("runs", "shop", "--json").json}
    report = found["01FAR"]
    assert report["status"] == "running" and "cannot be checked" in report["notes"][0]


def test_L12_the_text_says_whose_lock_it_was(shop: Cli) -> None:
    with opened(shop) as store:
        store.acquire("shop", far(), 60)
    told = shop("state", "unlock", "shop")
    assert told.code == 0 and "the lock is broken" in told.out
    assert "process 1, run 01FAR" in told.out and "2026-11-20T10:00:00Z" in told.out
    assert "was not checked" in told.out
    again = shop("state", "unlock", "shop")
    assert again.code == 0 and "no run has the lock" in again.out
    assert shop("state", "unlock", "shop", "--json").json == {
        "pipeline": "shop", "unlocked": False, "checked": False, "holder": None
    }  # fmt: skip
    unknown = shop("state", "unlock", "shpo", "--json")
    assert (unknown.code, unknown.error["code"]) == (2, "config.unknown_pipeline")


def test_L12_the_lock_of_a_process_that_lives_is_refused_with_the_way_out(shop: Cli) -> None:
    with opened(shop) as store:
        held = store.acquire("shop", this_holder("01RUNNING"), 60)
        told = shop("state", "unlock", "shop", "--json")
        assert (told.code, told.error["code"]) == (6, "state.locked")
        assert "01RUNNING" in told.error["message"] and "lives" in told.error["message"]
        assert f"`kill {os.getpid()}`" in told.error["hint"]
        assert not lost(store, held)
        store.release(held)


@pytest.mark.parametrize("named", ["name", "file", "elsewhere", "home"])
def test_L12_the_command_of_the_error_runs_as_printed(shop: Cli, named: str) -> None:
    """In a home of its own, with a name that a shell would split, and with a store that the
    pipeline file names."""
    pipeline, place = "shop" if named in ("name", "home") else "the shop", None
    state, home, environ = "", list[str](), dict[str, str]()
    if named == "home":
        home, environ = ["--home", str(shop.home)], {"PENSTOCK_HOME": str(shop.cwd / "another")}
    if named == "elsewhere":
        place = str(shop.cwd / "other.db")
        state = f"state: {{path: '{place}'}}\n"
    text = f"pipeline: {pipeline}\nsource: {{use: '{SOURCE}'}}\n"
    text += "destination: {use: 'parquet:./l'}\n"
    (shop.cwd / "a file.yaml").write_text(text + state)
    with opened(shop, place) as store:
        store.release(store.acquire(pipeline, far(), 60))
        words = [pipeline] if named in ("name", "home") else ["a file.yaml"]
        alive = store.acquire(pipeline, this_holder("01RUNNING"), 60)
        told = shop("state", "adopt", *words, *home, "--json", **environ)
        assert told.error["code"] == "state.locked"
        store.release(alive)
        held = store.acquire(pipeline, far(), 60)
        (command,) = re.findall(r"`(penstock state unlock [^`]*)`", told.error["hint"])
        assert shop(*shlex.split(command)[1:], "--json", **environ).json["unlocked"]
        assert lost(store, held)


def test_L12_a_change_waits_for_a_dead_holder_elsewhere_and_says_so(shop: Cli) -> None:
    with opened(shop) as store:
        held = store.acquire("shop", far(), 1)
        began = time.monotonic()
        told = shop("state", "adopt", "shop", "--json")
        assert told.code == 0 and time.monotonic() - began >= 1
        assert "waiting up to 1 s" in told.err and "run 01FAR" in told.err
        assert "penstock state unlock shop" in told.err
        assert lost(store, held)

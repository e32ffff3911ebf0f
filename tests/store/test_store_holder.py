"""Does the holder of a lock live? Certain answers only (L12)."""

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from penstock.store.contract import Holder
from penstock.store.lock_holder import boot, is_alive, iso_time, start_mark, this_holder


def changed(**values: Any) -> Holder:
    return msgspec.structs.replace(this_holder("r"), **values)


def test_this_process_is_alive_and_names_itself() -> None:
    me = this_holder("r")
    assert me.pid == os.getpid() and "@" in me.name and me.started_at.endswith("Z")
    assert is_alive(me, start_mark(me)) is True


def test_L12_a_process_without_a_stored_start_time_is_not_alive_for_certain() -> None:
    """Its id may be another process's by now, as after a restart of the machine."""
    assert is_alive(this_holder("r"), None) is None


def test_a_process_that_ended_is_dead_zombie_or_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    it = changed(pid=child.pid)
    mark = start_mark(it)
    assert is_alive(it, mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(it, mark) is False  # a zombie
    child.communicate()
    assert is_alive(it, mark) is False


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    me = this_holder("r")
    if start_mark(me) is None:
        pytest.skip("this system tells no process start times")
    assert is_alive(me, "1") is False


@pytest.mark.parametrize("where", ["", "another boot"])
def test_a_process_elsewhere_is_never_judged(where: str) -> None:
    far = changed(pid=2**22 - 1, boot=where)
    assert start_mark(far) is None and is_alive(far, None) is None
    assert is_alive(changed(pid=2**22 - 1), None) is False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="process-id spaces are Linux's")
def test_boot_tells_containers_of_one_kernel_apart() -> None:
    """Two containers share the kernel's boot id, and a process id means nothing in the other."""
    assert os.readlink("/proc/self/ns/pid") in boot()


def test_times_are_utc_with_milliseconds() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"

"""Is a lease's holder dead? Certain answers only (L12)."""

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from penstock.store.contract import Holder
from penstock.store.lock_holder import boot, is_dead, iso_time, start_mark, this_holder


def changed(**values: Any) -> Holder:
    return msgspec.structs.replace(this_holder("r"), **values)


def test_this_process_is_alive_and_names_itself() -> None:
    me = this_holder("r")
    assert me.pid == os.getpid() and "@" in me.name and me.started_at.endswith("Z")
    assert not is_dead(me, start_mark(me)) and not is_dead(me, None)


def test_a_process_that_ended_is_dead_zombie_or_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    it = changed(pid=child.pid)
    mark = start_mark(it)
    assert not is_dead(it, mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(it, mark)  # a zombie
    child.communicate()
    assert is_dead(it, mark)


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    me = this_holder("r")
    if start_mark(me) is None:
        pytest.skip("this system tells no process start times")
    assert is_dead(me, "1")


@pytest.mark.parametrize("where", ["", "another boot"])
def test_a_process_elsewhere_is_never_judged(where: str) -> None:
    far = changed(pid=2**22 - 1, boot=where)
    assert start_mark(far) is None and not is_dead(far, None)
    assert is_dead(changed(pid=2**22 - 1), None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="process-id spaces are Linux's")
def test_boot_tells_containers_of_one_kernel_apart() -> None:
    """Two containers share the kernel's boot id, and a process id means nothing in the other."""
    assert os.readlink("/proc/self/ns/pid") in boot()


def test_times_are_utc_with_milliseconds() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"

"""L10: a connector that uses more memory than its limit is killed whole, and the error says so.

Both ways: a control group, in which the kernel kills, and watching, which is what is left where no
group can be made.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.runtimes.linux_sandbox import Memory, places

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="memory is bounded on Linux only"
)
MB = 1024**2

# Runs in a process of its own, so that the groups of this machine can be hidden from it.
OWNER = """
import json, sys, time
from penstock.errors import PenstockError
from penstock.runtimes.limits import Confinement
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.linux_sandbox import places
from penstock.runtimes.process import ProcessRuntime
command, limit = [sys.executable, "-S", "-c", *sys.argv[2:]], int(sys.argv[1])
out, code, error, began = b"", None, None, time.monotonic()
try:
    runtime = ProcessRuntime(command, confinement=Confinement(max_memory=limit))
    with runtime.open([], RunTimeouts(stop=1)) as channel:
        while data := channel.read(30):
            out += data
        code = channel.wait(10)
except PenstockError as e:
    error = e.as_dict()
print(json.dumps({"out": out.decode(), "code": code, "error": error, "groups": len(places()),
                  "seconds": time.monotonic() - began}))
"""
HIDDEN = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]


def run(way: str, code: str, *words: str, limit: int = 64 * MB) -> dict[str, object]:
    prefix: list[str] = []
    if way == "group" and not places():
        pytest.skip("no control group can be made here")
    if way == "watching" and places():
        prefix = HIDDEN
        if (
            not shutil.which("unshare")
            or subprocess.run([*HIDDEN, "true"], capture_output=True).returncode
        ):
            pytest.skip("the groups of this machine cannot be hidden")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", OWNER, str(limit), code, *words],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert bool(told["groups"]) == (way == "group")
    return told


both = pytest.mark.parametrize("way", ["group", "watching"])

HOG = (
    "import time\nprint('before', flush=True)\n"
    "held = []\n"
    "for _ in range(40):\n    held.append(b'x' * (5 << 20))\n"
    "print('after', flush=True)\ntime.sleep(30)\n"
)
FAMILY = (
    "import os, sys, time\nprint('before', flush=True)\n"
    "if os.fork() == 0:\n"
    "    if os.fork() == 0:\n"
    "        open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    "        held = b'x' * (200 << 20)\n        time.sleep(30)\n"
    "    time.sleep(30)\n"
    "time.sleep(30)\n"
)
TOGETHER = (
    "import os, time\nprint('before', flush=True)\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n        held = b'x' * (30 << 20)\n        time.sleep(30)\n"
    "time.sleep(30)\n"
)
SHARED = (
    "import mmap, os, time\n"
    "pages = mmap.mmap(-1, 40 << 20)\npages.write(b'x' * (40 << 20))\n"
    "children = [os.fork() for _ in range(3)]\n"
    "if 0 in children:\n"
    "    sum(pages[::4096])\n    time.sleep(2.5)\n    os._exit(0)\n"
    "for child in children:\n    os.waitpid(child, 0)\nprint('whole', flush=True)\n"
)


def of_memory(told: dict[str, object], *, limit: str = "64.0 MB") -> str:
    error = told["error"]
    assert isinstance(error, dict), told
    assert error["code"] == "source.memory"
    assert f"its limit is {limit} (limits.max_memory)" in error["message"]
    assert error["hint"]
    assert float(str(told["seconds"])) < 15
    return error["message"]


@both
def test_memory_beyond_the_limit_kills_it_and_the_error_says_so(way: str) -> None:
    told = run(way, HOG)
    message = of_memory(told)
    assert str(told["out"]).startswith("before\n"), "what it had said is kept"
    used = float(message.split("used ")[1].split(" MB")[0])
    assert 60 <= used <= 260


@both
def test_memory_of_a_grandchild_counts_and_the_whole_tree_goes(way: str, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    of_memory(run(way, FAMILY, str(mark)))
    assert not Path(f"/proc/{mark.read_text()}").exists()


@both
def test_memory_of_the_tree_is_added_up(way: str) -> None:
    """Three times 30 MB, none of them beyond 64 MB."""
    of_memory(run(way, TOGETHER))


@both
def test_memory_that_processes_share_counts_once(way: str) -> None:
    told = run(way, SHARED, limit=96 * MB)
    assert (told["error"], told["out"], told["code"]) == (None, "whole\n", 0)


@both
def test_memory_within_the_limit_is_left_alone(way: str) -> None:
    told = run(way, "held = b'x' * (40 << 20)\nimport time\ntime.sleep(1.5)\nprint('whole')")
    assert (told["error"], told["out"], told["code"]) == (None, "whole\n", 0)


@both
def test_exit_of_its_own_is_no_matter_of_memory(way: str) -> None:
    told = run(way, "import os\nos.kill(os.getpid(), 9)")
    assert (told["error"], told["code"]) == (None, -9)


# -- groups


def groups() -> set[str]:
    return {
        str(g) for folder, _ in places() for g in Path(folder).iterdir() if "penstock-" in g.name
    }


def test_group_goes_with_its_connector_and_that_of_a_killed_supervisor_with_the_next() -> None:
    if not places():
        pytest.skip("no control group can be made here")
    before = groups()
    killed = (
        "import os, sys\nfrom penstock.runtimes.linux_sandbox import Memory\n"
        "print(Memory(64 << 20).group.folder, flush=True)\nos.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", killed], stdout=subprocess.PIPE, text=True)
    left = Path(died.stdout.strip())
    assert left.is_dir()
    told = run("group", "print('whole')")
    assert told["out"] == "whole\n"
    assert not left.exists()
    assert groups() <= before


def test_groups_of_others_that_live_are_left_alone() -> None:
    if not places():
        pytest.skip("no control group can be made here")
    memory = Memory(64 * MB)
    assert memory.group is not None
    folder = Path(memory.group.folder)
    try:
        run("group", "print('whole')")
        assert folder.is_dir()
    finally:
        memory.remove()
    assert not folder.exists()


def machine(tmp_path: Path, own: str, mounts: list[str]) -> str:
    """Files such as the kernel's, by which a group's place is found."""
    (tmp_path / "cgroup").write_text(own)
    (tmp_path / "mountinfo").write_text("".join(f"{m}\n" for m in mounts))
    return str(tmp_path)


def folder_of(path: Path, *, hands_down: str = "") -> Path:
    path.mkdir(parents=True)
    (path / "cgroup.procs").touch()
    (path / "cgroup.subtree_control").write_text(hands_down)
    return path


def test_places_of_version_2_are_where_memory_is_handed_down(tmp_path: Path) -> None:
    """A group with processes in it hands nothing down: its parent does, in a delegated session."""
    above = folder_of(tmp_path / "fs" / "app.slice", hands_down="cpu memory pids\n")
    folder_of(above / "run.scope")
    mount = f"30 23 0:26 / {tmp_path}/fs rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
    proc = machine(tmp_path, "0::/app.slice/run.scope\n", ["junk - x y z", mount])
    assert places(proc) == [(str(above), 2)]
    (above / "cgroup.subtree_control").write_text("cpu pids\n")
    assert places(proc) == []


def test_places_of_version_1_in_a_container_count_from_its_mount(tmp_path: Path) -> None:
    point = folder_of(tmp_path / "fs" / "memory")
    mount = f"31 23 0:27 /docker/ab {point} rw - cgroup cgroup rw,memory"
    other = f"32 23 0:28 /docker/ab {tmp_path}/fs/cpu rw - cgroup cgroup rw,cpu"
    own = "5:cpu:/docker/ab\n4:memory:/docker/ab\n"
    assert places(machine(tmp_path, own, [other, mount])) == [(str(point), 1)]
    inner = folder_of(point / "inner")
    own = own.replace("/ab\n", "/ab/inner\n")
    assert places(machine(tmp_path, own, [mount])) == [(str(inner), 1)]


def test_a_killed_owner_leaves_neither_the_tree_nor_its_group(tmp_path: Path) -> None:
    """L11: also under a limit."""
    mark = tmp_path / "pid"
    code = "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(64 * MB), code, str(mark)])
    deadline = time.monotonic() + 20
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    pid = int(mark.read_text())
    mine = {g for g in groups() if str(pid) in (Path(g) / "cgroup.procs").read_text().split()}
    assert len(mine) == (1 if places() else 0)
    os.kill(owner.pid, 9)
    owner.wait(5)
    deadline = time.monotonic() + 5
    while (Path(f"/proc/{pid}").exists() or mine & groups()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
    assert not mine & groups()

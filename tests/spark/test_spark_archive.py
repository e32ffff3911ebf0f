"""Starts that map Spark's classes from an archive, and how archives come about."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from penstock.errors import ConfigError
from penstock.spark import class_archive_build
from penstock.spark.class_archive import archive_path, trusted, use_options
from penstock.spark.class_archive_build import KEPT, make_now, make_soon
from penstock.spark.java import JavaHome, find_java
from penstock.tables.contract import SessionNeeds

JAVA = JavaHome(Path("/usr/lib/jvm/x"), "17.0.1")
NEEDS = SessionNeeds()
NOT_CI: dict[str, str] = {}
USE = """
import sys
from pathlib import Path
from penstock.spark import session
from penstock.tables.contract import SessionNeeds
cache, scratch = Path(sys.argv[1]), Path(sys.argv[2])
conf = {"spark.driver.extraJavaOptions": f"-Xshare:on -Xlog:class+load:file={scratch}/loaded"}
spark = session.open_session(
    SessionNeeds(), cores=1, conf=conf, scratch_dir=scratch, cache_dir=cache
)
assert spark.range(10).count() == 10
session.close_session(spark)
"""


def put(path: Path) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_an_archive_is_of_one_java_and_one_set_of_jars(tmp_path: Path) -> None:
    assert use_options(JAVA, (), tmp_path) == []
    path = put(archive_path(JAVA, (), tmp_path))
    assert f"-XX:SharedArchiveFile={path}" in use_options(JAVA, (), tmp_path)
    assert use_options(JavaHome(JAVA.home, "17.0.2"), (), tmp_path) == []
    jar = tmp_path / "table.jar"
    jar.write_text("1")
    own = archive_path(JAVA, (jar,), tmp_path)
    assert f"-XX:SharedArchiveFile={path}" in use_options(JAVA, (jar,), tmp_path)  # till then
    put(own)
    assert f"-XX:SharedArchiveFile={own}" in use_options(JAVA, (jar,), tmp_path)
    jar.write_text("another one")
    assert archive_path(JAVA, (jar,), tmp_path) != own


def test_what_others_may_have_written_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(archive_path(JAVA, (), tmp_path))
    path.parent.chmod(0o770)
    assert use_options(JAVA, (), tmp_path) == []
    with pytest.raises(ConfigError, match="can be written by other users"):
        make_now(NEEDS, tmp_path)
    assert make_soon(NEEDS, tmp_path, NOT_CI) is None
    path.parent.chmod(0o700)
    assert use_options(JAVA, (), tmp_path) != []
    if os.geteuid() == 0:
        os.chown(path, 1, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert use_options(JAVA, (), tmp_path) == []


def test_nothing_is_made_in_ci_nor_twice_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose machine is thrown away pays for nothing; what fails is not tried after every run."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a maker was started")

    monkeypatch.setattr(class_archive_build.subprocess, "Popen", never)
    assert make_soon(NEEDS, tmp_path, {"CI": "true"}) is None
    path = archive_path(find_java(), (), tmp_path)
    tried = put(path.with_suffix(".tried"))
    assert make_soon(NEEDS, tmp_path, NOT_CI) is None
    os.utime(tried, (0, 0))
    with pytest.raises(AssertionError, match="a maker was started"):
        make_soon(NEEDS, tmp_path, {"CI": "0"})
    put(path)
    assert make_soon(NEEDS, tmp_path, NOT_CI) is None


def children(pid: int) -> list[int]:
    """Those of a process, theirs too."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [c for child in map(int, listed) for c in (child, *children(child))]


def await_child(process: "subprocess.Popen[Any]") -> list[int]:
    deadline = time.monotonic() + 120
    while not any(_name(c) == "java" for c in children(process.pid)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    return children(process.pid)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(_name(p) == "java" for p in pids):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.spark
def test_a_maker_that_is_killed_leaves_nothing_and_there_is_one_at_a_time(tmp_path: Path) -> None:
    """L11: its Java ends with it, politely or not; what a SIGKILL leaves the next one removes."""
    folder = archive_path(find_java(), (), tmp_path).parent
    first = make_soon(NEEDS, tmp_path, NOT_CI)
    assert first is not None
    started = await_child(first)
    assert os.getpriority(os.PRIO_PROCESS, started[0]) == 19
    for mark in folder.glob("*.tried"):
        mark.unlink()
    second = make_soon(NEEDS, tmp_path, NOT_CI)
    assert second is not None and second.wait(60) == 0
    assert len(list(folder.glob("making-*"))) == 1 and not list(folder.glob("*.tried"))
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 128 + signal.SIGTERM
    assert _gone(started) and {p.name for p in folder.iterdir()} == {"lock"}
    third = make_soon(NEEDS, tmp_path, NOT_CI)
    assert third is not None
    started = await_child(third)
    third.kill()
    third.wait()
    assert _gone(started) and len(list(folder.glob("making-*"))) == 1


@pytest.mark.spark
def test_who_waits_takes_the_maker_along(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from penstock.tables.contract import SessionNeeds\n"
        "from penstock.spark.class_archive_build import make_now\n"
        "make_now(SessionNeeds(), Path(sys.argv[1]))"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    started = await_child(owner)
    owner.kill()
    owner.wait()
    assert _gone(started)


MAKE = """
import sys
from pathlib import Path
from penstock.spark.class_archive_build import make_now
from penstock.tables.contract import SessionNeeds
print(make_now(SessionNeeds(), Path(sys.argv[1])))
"""
MAKE_SMALL = """
import sys
from pathlib import Path
from penstock.spark import class_archive_build as build
from penstock.spark.class_archive import archive_path
from penstock.spark.java import find_java
build._TRIAL = build._TRIAL[:2]  # a session and a statement that writes files
cache = Path(sys.argv[1])
build._make(build.ArchiveRequest((), {}, (), str(cache), True))
print(archive_path(find_java(), (), cache))
"""


@pytest.mark.spark
@pytest.mark.parametrize("packaged", [False, True])
def test_what_is_made_is_used(tmp_path: Path, packaged: bool) -> None:
    """By the packaged Java, of fewer statements, and by the one at hand, for which ``./test`` has
    made it: ``-Xshare:on`` ends a Java that cannot map it, and Java says of each class where it has
    it from."""
    # No option that an archive depends on, as which collector is.
    environ = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    cache, scratch = tmp_path / "cache", tmp_path / "scratch"
    if packaged:
        environ["JAVA_HOME"] = str(find_java({"PATH": ""}).home)
    elif find_java().packaged:
        pytest.skip("this machine has no other Java")
    elif trusted(archive_path(find_java(), (), users := platformdirs.user_cache_path("penstock"))):
        assert_used(users, scratch, environ)
        return
    folder = cache / "classes"
    folder.mkdir(parents=True, mode=0o700)
    left = folder / "making-left"
    left.mkdir()
    for number in range(KEPT):
        os.utime(put(folder / f"{number}.jsa"), (number, number))
    made = Path(program(MAKE_SMALL if packaged else MAKE, cache, scratch, environ))
    assert_used(cache, scratch, environ)
    assert made.stat().st_mode & 0o777 == 0o600
    assert not left.exists() and not (folder / "0.jsa").exists()
    assert {p.name for p in folder.glob("*.jsa")} == {made.name, *(f"{n}.jsa" for n in range(1, 6))}


def program(code: str, cache: Path, scratch: Path, environ: dict[str, str]) -> str:
    """What it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(cache), str(scratch)],
        capture_output=True,
        text=True,
        timeout=600,
        env=environ,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def assert_used(cache: Path, scratch: Path, environ: dict[str, str]) -> None:
    program(USE, cache, scratch, environ)
    loaded = (scratch / "loaded").read_text().splitlines()
    shared = [x for x in loaded if " org.apache.spark." in x and "shared objects file" in x]
    read = [x for x in loaded if " org.apache.spark." in x and "/jars/spark-" in x]
    assert len(shared) > 3000 > 20 * len(read)


def test_a_maker_is_given_no_secret_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L10: neither by its command line nor by its environment."""
    given: dict[str, Any] = {}

    class Started:
        def __init__(self, command: list[str], **options: Any) -> None:
            given.update(options, command=command)

        def wait(self) -> int:
            return 0

    monkeypatch.setenv("SHOP_PASSWORD", "hush")
    monkeypatch.setattr(class_archive_build.subprocess, "Popen", Started)
    assert make_soon(NEEDS, tmp_path, NOT_CI) is not None
    assert "hush" not in json.dumps([given["env"], given["command"]])
    assert given["env"]["PATH"]

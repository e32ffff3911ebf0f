"""One run of a process: bytes, exit codes, timeouts, back-pressure, private files, environment."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from held_folders import held_by
from penstock.errors import SourceError
from penstock.runtimes.contract import ByteChannel, PrivateFile, RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.owner import this_owner
from penstock.runtimes.process import READ_SIZE, ProcessRuntime

PY = [sys.executable, "-S", "-c"]


def everything(channel: ByteChannel) -> bytes:
    out = bytearray()
    while data := channel.read(20):
        out += data
    return bytes(out)


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", -15), ("kill -9 $$", -9)],
)
def test_exit_codes_and_signals_come_through(command: str, code: int) -> None:
    with ProcessRuntime(["sh", "-c", command]).open([], RunTimeouts()) as channel:
        assert everything(channel) == b""
        assert channel.wait(10) == code
        assert channel.wait(0) == code
    assert channel.wait(0) == code


def test_read_and_wait_return_none_when_nothing_happens() -> None:
    with ProcessRuntime(["sleep", "30"]).open([], RunTimeouts(stop=1)) as channel:
        began = time.monotonic()
        assert channel.read(0.2) is None
        assert channel.wait(0.2) is None
        assert channel.read(0) is None
        assert 0.4 <= time.monotonic() - began < 15


def test_large_output_arrives_whole_in_bounded_blocks() -> None:
    code = "import sys\nfor i in range(40): sys.stdout.buffer.write(bytes([65 + i % 26]) * 500_000)"
    with ProcessRuntime([*PY, code]).open([], RunTimeouts()) as channel:
        sizes: list[int] = []
        total = bytearray()
        while data := channel.read(20):
            sizes.append(len(data))
            total += data
        assert channel.wait(10) == 0
    assert bytes(total) == b"".join(bytes([65 + i % 26]) * 500_000 for i in range(40))
    assert max(sizes) <= 4 * READ_SIZE


def test_many_flushed_lines_are_gathered() -> None:
    """A source that flushes each record must not cost one wake-up a record."""
    code = "import os\nfor i in range(20000): os.write(1, b'%06d' % i + b'x' * 593 + b'\\n')"
    with ProcessRuntime([*PY, code]).open([], RunTimeouts()) as channel:
        reads = 0
        size = 0
        while data := channel.read(20):
            reads += 1
            size += len(data)
    assert size == 20000 * 600
    assert reads < 2000


def test_not_reading_holds_the_connector_back(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = (
        "import os, sys\nfor i in range(64): os.write(1, b'x' * 262144)\n"
        "open(sys.argv[1], 'w').close()"
    )
    with ProcessRuntime([*PY, code, str(mark)]).open([], RunTimeouts()) as channel:
        assert channel.wait(0.7) is None
        assert not mark.exists()
        assert len(everything(channel)) == 64 * 262144
        assert channel.wait(10) == 0
    assert mark.exists()


def test_stop_from_another_thread_ends_a_read() -> None:
    with ProcessRuntime(["sleep", "60"]).open([], RunTimeouts(stop=1)) as channel:
        timer = threading.Timer(0.3, channel.stop)
        timer.start()
        assert channel.read(20) == b""
        timer.join()
        assert channel.wait(0) == -signal.SIGTERM


def test_stderr_is_logged_by_line_masked_and_its_tail_kept() -> None:
    """L10: the connector prints its own password, also split over two writes."""
    code = (
        "import os, time\nos.write(2, b'first\\nlogin hun')\ntime.sleep(0.2)\n"
        "os.write(2, b'ter2 ok\\n' + b'y' * 60 + b'\\n')\n"
        "os.write(2, b''.join(b'line %d\\n' % i for i in range(5000)) + b'last hunter2')"
    )
    lines: list[str] = []
    runtime = ProcessRuntime([*PY, code], masker=Masker(["hunter2"]), log_stderr=lines.append)
    with runtime.open([], RunTimeouts()) as channel:
        assert everything(channel) == b""
        assert channel.wait(10) == 0
        tail = channel.stderr_tail()
    assert lines[:3] == ["first", "login **** ok", "y" * 60]
    assert len(lines) == 5004
    assert tail.endswith("line 4999\nlast ****")
    assert len(tail) <= 8192
    assert "hunter2" not in tail + "".join(lines)


def test_stderr_never_blocks_the_connector_even_when_logging_fails() -> None:
    def broken(line: str) -> None:
        raise RuntimeError(line)

    code = "import os\nfor i in range(200): os.write(2, b'e' * 65536)\nos.write(1, b'done')"
    with ProcessRuntime([*PY, code], log_stderr=broken).open([], RunTimeouts()) as channel:
        assert everything(channel) == b"done"
        assert channel.wait(10) == 0


def test_l10_private_files_are_private_and_removed() -> None:
    code = (
        "import os, sys\n"
        "for p in sys.argv[1:]:\n"
        "    s = os.stat(p); d = os.stat(os.path.dirname(p))\n"
        "    print(p, oct(s.st_mode & 0o777), oct(d.st_mode & 0o777), open(p).read())"
    )
    files = [PrivateFile("config.json", b"one"), PrivateFile("config.json", b"two")]
    with ProcessRuntime([*PY, code]).open(files, RunTimeouts()) as channel:
        lines = [line.split() for line in everything(channel).decode().splitlines()]
        assert [line[1:] for line in lines] == [
            ["0o600", "0o700", "one"],
            ["0o600", "0o700", "two"],
        ]
        paths = [Path(line[0]) for line in lines]
        assert all(stat.S_ISREG(p.stat().st_mode) for p in paths)
    assert not any(p.parent.exists() for p in paths)


def mine() -> set[str]:
    """The private folders that this process holds."""
    return {*map(str, held_by(os.getpid()))}


def test_l10_private_files_are_removed_when_the_start_fails(tmp_path: Path) -> None:
    script = tmp_path / "bad"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(SourceError):
        ProcessRuntime([str(script)]).open([PrivateFile("c", b"x")], RunTimeouts())
    assert mine() == set()


OWNER = (
    "import os, sys, time\nfrom penstock.runtimes.contract import PrivateFile, RunTimeouts\n"
    "from penstock.runtimes.process import ProcessRuntime\n"
    "channel = ProcessRuntime(['sh', '-c', 'echo $0; exec sleep 60']).open(\n"
    "    [PrivateFile('c', b'hunter2')], RunTimeouts())\n"
    "print(channel.read(10).decode(), end='', flush=True)\n"
)


def test_l10_private_files_of_a_killed_owner_are_swept_by_the_next_start() -> None:
    owner = (
        "import os\nfrom penstock.runtimes.contract import PrivateFile\n"
        "from penstock.runtimes.private_files import PrivateFolder\n"
        "folder = PrivateFolder([PrivateFile('c', b'x')])\n"
        "print(folder.arguments[0], flush=True)\nos.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    left = Path(died.stdout.strip())
    assert left.exists()
    with ProcessRuntime(["true"]).open([PrivateFile("c", b"x")], RunTimeouts()) as channel:
        kept = mine()
        assert len(kept) == 1
        assert not left.parent.exists()
        with ProcessRuntime(["true"]).open([PrivateFile("c", b"x")], RunTimeouts()):
            assert kept < mine(), "the folder of a living owner is left alone"
            assert all(map(os.path.isdir, kept))
        channel.wait(5)
    assert mine() == set()


def in_namespace(*command: str) -> "subprocess.Popen[str]":
    """Starts a command as the first process of a namespace of process ids, which dies with it."""
    own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    return subprocess.Popen([*own, "--kill-child", *command], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(
    shutil.which("unshare") is None or in_namespace("true").wait(10) != 0,
    reason="this machine gives a user no namespace of processes",
)
def test_l10_private_files_of_a_namespace_that_died_whole_are_swept() -> None:
    """As a container's end with shared memory of the host: owner, supervisor and connector die at
    the same moment, so that nobody of them is left to remove the configuration."""
    inside = f"{OWNER}import time; time.sleep(60)"
    with in_namespace(sys.executable, "-c", inside) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        try:
            assert left.read_bytes() == b"hunter2"
            with ProcessRuntime(["true"]).open([PrivateFile("c", b"x")], RunTimeouts()):
                assert left.exists(), "its owner lives, in a namespace that cannot be looked into"
        finally:
            owner.kill()
    deadline = time.monotonic() + 10
    while left.exists() and time.monotonic() < deadline:
        with ProcessRuntime(["true"]).open([PrivateFile("c", b"x")], RunTimeouts()):
            pass
        time.sleep(0.05)
    assert not left.parent.exists()


def test_l10_private_files_that_an_earlier_version_left_are_swept(tmp_path: Path) -> None:
    """Their folders have their owner's name in place of a lock: of another boot, it is dead."""
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else tmp_path
    dead = base / f"penstock-private-{'0' * 31}1-4026531836-1-1-{tmp_path.name[-8:]}"
    lives = base / f"penstock-private-{this_owner()}-{tmp_path.name[-8:]}"
    for folder in (dead, lives):
        folder.mkdir(mode=0o700)
    try:
        with ProcessRuntime(["true"]).open([PrivateFile("c", b"x")], RunTimeouts()):
            assert lives.exists()
            assert base == tmp_path or not dead.exists()
    finally:
        lives.rmdir()


def test_connectors_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_HOME", "SPARK_HOME", "PYTHONPATH", "AWS_SECRET_ACCESS_KEY", "PYSPARK_X"):
        monkeypatch.setenv(name, "leak")
    monkeypatch.setenv("https_proxy", "http://proxy")
    monkeypatch.setenv("TZ", "Europe/Bern")
    with ProcessRuntime(["env"], env={"EXTRA": "given", "TZ": "UTC"}).open([], RunTimeouts()) as ch:
        seen = dict(line.split("=", 1) for line in everything(ch).decode().splitlines())
    assert "leak" not in seen.values()
    assert (seen["EXTRA"], seen["TZ"], seen["https_proxy"]) == ("given", "UTC", "http://proxy")
    assert {"PATH", "HOME"} <= set(seen)


def test_stdin_is_empty_and_no_descriptor_of_ours_leaks() -> None:
    code = (
        "import os, sys\n"
        "print(sys.stdin.read() == '', sorted(map(int, os.listdir('/proc/self/fd'))))"
    )
    if not sys.platform.startswith("linux"):
        pytest.skip("descriptors are listed by /proc")
    with ProcessRuntime([*PY, code]).open([], RunTimeouts()) as channel:
        assert everything(channel) == b"True [0, 1, 2, 3]\n"  # 3: the listing itself


def test_cwd(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "run").chmod(0o755)
    with ProcessRuntime(["./run"], cwd=tmp_path).open([], RunTimeouts()) as channel:
        assert everything(channel).decode().strip() == str(tmp_path.resolve())


def test_descriptors_and_threads_are_given_back() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("descriptors are listed by /proc")

    def once() -> None:
        with ProcessRuntime(["true"]).open([], RunTimeouts()) as channel:
            everything(channel)

    once()
    before = (len(os.listdir("/proc/self/fd")), threading.active_count())
    for _ in range(5):
        once()
        with pytest.raises(SourceError):
            ProcessRuntime(["/no/such"]).open([], RunTimeouts())
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


# -- start errors: what happened, and what to do


def refused(
    command: list[str], cwd: Path | None = None, secrets: tuple[str, ...] = ()
) -> SourceError:
    with pytest.raises(SourceError) as caught:
        ProcessRuntime(command, cwd=cwd, masker=Masker(secrets)).open([], RunTimeouts())
    assert caught.value.hint
    return caught.value


def test_command_not_found() -> None:
    error = refused(["no-such-connector"])
    assert error.code == "connector.not_found"
    assert "no-such-connector" in str(error)


def test_file_not_found(tmp_path: Path) -> None:
    error = refused(["./source"], cwd=tmp_path)
    assert error.code == "connector.not_found"
    assert str(tmp_path) in str(error)
    (tmp_path / "my_tap.py").touch()
    error = refused([str(tmp_path / "my_tpa.py")], cwd=tmp_path)
    assert str(error).count("my_tpa.py") == 1 and error.hint == "did you mean my_tap.py ?"


def test_command_in_working_directory_is_suggested_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "source-x").write_text("")
    assert refused(["source-x"], cwd=tmp_path).hint == "give its path: ./source-x"


def test_not_executable(tmp_path: Path) -> None:
    script = tmp_path / "source.py"
    script.write_text("print(1)")
    error = refused([str(script)])
    assert error.code == "connector.not_executable"
    assert "chmod +x" in (error.hint or "") and "python3" in (error.hint or "")


def test_directory(tmp_path: Path) -> None:
    assert refused([str(tmp_path)]).code == "connector.not_executable"


def test_no_first_line(tmp_path: Path) -> None:
    script = tmp_path / "source"
    script.write_text("print(1)")
    script.chmod(0o755)
    error = refused([str(script)])
    assert error.code == "connector.not_executable"
    assert "#!" in str(error)


def test_bad_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "source"
    script.write_text("#!/opt/python9/bin/python\n")
    script.chmod(0o755)
    error = refused([str(script)])
    assert error.code == "connector.start_failed"
    assert "/opt/python9/bin/python" in str(error)


def test_missing_working_directory(tmp_path: Path) -> None:
    error = refused(["sh"], cwd=tmp_path / "gone")
    assert error.code == "connector.start_failed"
    assert "gone" in str(error)


def test_l10_start_errors_are_masked() -> None:
    assert "hunter2" not in str(refused(["/no/hunter2/source"], secrets=("hunter2",)))


@pytest.mark.parametrize("module", ["process", "memory", "masking"])
def test_light_import(module: str) -> None:
    """Hot path: nothing heavy comes along."""
    code = (
        f"import sys, penstock.runtimes.{module}\n"
        "print([m for m in ('asyncio','sqlalchemy','typer','rich','pyspark','yaml','duckdb')"
        " if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"

"""Feeding a connector's stdin: bounded, from another thread, and a broken pipe is told (L11)."""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from penstock.runtimes.contract import (
    ByteChannel,
    ConnectionStats,
    PrivateFile,
    Runtime,
    RunTimeouts,
)
from penstock.runtimes.memory import CloseInput, Exit, MemoryRuntime, NextLine, Step
from penstock.runtimes.metered import MeteredRuntime
from penstock.runtimes.process import ProcessRuntime

PY = [sys.executable, "-S", "-c"]


def fed(code: str) -> ByteChannel:
    runtime: Runtime = ProcessRuntime([*PY, code])
    return runtime.open([], RunTimeouts(stop=1), feed=True)


def push(channel: ByteChannel, data: bytes, failures: list[BaseException]) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[channel.write(view, 5.0) :]
        channel.end_input()
    except BaseException as e:
        failures.append(e)


def test_a_feeder_thread_and_a_reader_move_much_data_without_deadlock() -> None:
    data = os.urandom(1 << 20) * 24
    failures: list[BaseException] = []
    with ProcessRuntime(["cat"]).open([], RunTimeouts(), feed=True) as channel:
        feeder = threading.Thread(target=push, args=(channel, data, failures))
        feeder.start()
        got = hashlib.sha256()
        while block := channel.read(20):
            got.update(block)
        feeder.join(20)
        assert channel.wait(10) == 0
    assert not failures
    assert got.digest() == hashlib.sha256(data).digest()


def test_a_connector_that_does_not_read_takes_no_more_and_no_write_blocks() -> None:
    """L11: a full pipe costs the timeout, then the writer is back."""
    with fed("import time; time.sleep(60)") as channel:
        taken = 0
        while n := channel.write(b"x" * 65536, 0.1):
            taken += n
        assert 4096 <= taken <= 1 << 20
        began = time.monotonic()
        assert channel.write(b"x", 0.3) == 0
        assert 0.25 <= time.monotonic() - began < 15


def test_a_connector_that_closes_its_stdin_or_is_dead_breaks_the_pipe() -> None:
    with fed("import os, time; os.close(0); print('closed', flush=True); time.sleep(60)") as one:
        assert one.read(20) == b"closed\n"
        with pytest.raises(BrokenPipeError):
            one.write(b"x", 5)
        assert one.wait(0) is None
    with fed("") as two:
        assert two.wait(20) == 0
        with pytest.raises(BrokenPipeError):
            two.write(b"x", 5)
        two.end_input()


def test_the_end_of_input_is_seen_once_and_may_be_told_twice() -> None:
    with fed("import sys; print(len(sys.stdin.read()))") as channel:
        assert channel.write(b"abc", 5) == 3
        channel.end_input()
        channel.end_input()
        with pytest.raises(BrokenPipeError):
            channel.write(b"x", 5)
        assert channel.read(20) == b"3\n"


def test_closing_the_channel_frees_a_writer_that_waits() -> None:
    failures: list[BaseException] = []
    with fed("import time; time.sleep(60)") as channel:
        feeder = threading.Thread(target=push, args=(channel, b"x" * (4 << 20), failures))
        feeder.start()
        time.sleep(0.3)
    feeder.join(10)
    assert not feeder.is_alive()
    assert [type(f) for f in failures] == [BrokenPipeError]


def test_without_feed_stdin_is_at_its_end_and_cannot_be_written() -> None:
    runtime = ProcessRuntime([*PY, "import sys; print(repr(sys.stdin.read()))"])
    with runtime.open([], RunTimeouts()) as channel:
        assert channel.read(20) == b"''\n"
        with pytest.raises(BrokenPipeError):
            channel.write(b"x", 1)


def test_a_changed_private_file_can_be_read_until_the_channel_closes(tmp_path: Path) -> None:
    """A tap that rotates its token writes its config anew; by rename too."""
    code = (
        "import os, sys\nopen(sys.argv[1], 'w').write('new')\n"
        "open(sys.argv[2] + '.tmp', 'w').write('renamed')\n"
        "os.rename(sys.argv[2] + '.tmp', sys.argv[2])\n"
        "os.unlink(sys.argv[3]); os.symlink('/etc/hostname', sys.argv[3])\n"
        "os.unlink(sys.argv[4]); os.mkfifo(sys.argv[4])\n"
        "os.unlink(sys.argv[5])\n"
    )
    names = ["config.json", "state.json", "link", "fifo", "gone", "same"]
    files = [PrivateFile(n, b"old", writable=True) for n in names]
    with ProcessRuntime([*PY, code]).open(files, RunTimeouts()) as channel:
        assert channel.wait(20) == 0
        found = {n: channel.private(n) for n in [*names, "unknown"]}
    assert found == {
        "config.json": b"new",
        "state.json": b"renamed",
        "link": None,
        "fifo": None,
        "gone": None,
        "same": b"old",
        "unknown": None,
    }
    assert channel.private("config.json") is None


def test_the_meter_counts_what_was_written_and_passes_everything_on() -> None:
    stats = ConnectionStats()
    meter = MeteredRuntime(ProcessRuntime(["cat"]), stats)
    with meter.open([PrivateFile("a", b"1")][:0], RunTimeouts(), feed=True) as channel:
        assert channel.write(b"hello", 5) == 5
        channel.end_input()
        assert channel.read(20) == b"hello"
        assert channel.private("a") is None
    assert (stats.written, stats.bytes, stats.spoke) == (5, 5, True)


# -- the in-memory twin


def echo(_: list[str | bytes]) -> Generator[Step, bytes, None]:
    while line := (yield NextLine()):
        yield b"got " + line
    yield Exit(4)


def test_the_twin_is_fed_line_by_line() -> None:
    with MemoryRuntime(echo, capacity=8).open([], RunTimeouts(), feed=True) as channel:
        assert channel.read(0) is None
        assert channel.write(b"one\ntwo", 0) == 7
        assert channel.read(1) == b"got one\n"
        assert channel.read(0.05) is None
        channel.end_input()
        assert channel.read(1) == b"got two"
        assert channel.read(1) == b""
        assert channel.wait(0) == 4


def test_the_twin_is_bounded_and_can_close_its_input() -> None:
    def deaf(_: list[str | bytes]) -> Generator[Step, bytes, None]:
        yield b"hello"
        yield CloseInput()
        yield b"deaf"

    with MemoryRuntime(deaf, capacity=4).open(
        [PrivateFile("c", b"1")], RunTimeouts(), feed=True
    ) as channel:
        assert channel.write(b"123456", 0) == 4
        assert channel.write(b"56", 0.05) == 0
        assert channel.private("c") == b"1"
        assert (channel.read(0), channel.read(0)) == (b"hello", b"deaf")
        with pytest.raises(BrokenPipeError):
            channel.write(b"56", 1)


def test_the_twin_wakes_its_reader_when_another_thread_feeds() -> None:
    with MemoryRuntime(echo).open([], RunTimeouts(), feed=True) as channel:
        timer = threading.Timer(0.1, lambda: channel.write(b"x\n", 1))
        timer.start()
        assert channel.read(20) == b"got x\n"
        timer.join()


# -- drained: was it read?


def test_input_that_nobody_read_is_told_from_input_that_was_read() -> None:
    """A destination that ends with exit code 0 without reading has taken nothing."""
    with fed(
        "import sys, time; sys.stdin.buffer.read(3); print('3', flush=True); time.sleep(60)"
    ) as one:
        one.write(b"abc", 5)
        assert one.drained(20)
        one.write(b"d", 5)
        assert not one.drained(0.1)
    with fed("import time; time.sleep(0.5)") as two:
        two.write(b"abc", 5)
        with pytest.raises(BrokenPipeError):
            two.drained(20)
    with MemoryRuntime(lambda _: [b"x"]).open([], RunTimeouts(), feed=True) as three:
        three.write(b"abc", 0)
        assert not three.drained(0)
        assert (three.read(0), three.read(0)) == (b"x", b"")
        with pytest.raises(BrokenPipeError):
            three.drained(1)


# -- ended_well: did it end by itself, with 0, after it had read everything?

READ_ALL = "import sys; sys.stdin.buffer.read(3);"
DAEMON = "import os, time; os.fork() and os._exit({code}); {close}; time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "well"),
    [
        (READ_ALL, True),
        (READ_ALL + "sys.stdin.close(); import time; time.sleep(0.3)", True),
        (READ_ALL + "sys.exit(2)", False),
        (READ_ALL + "import os; os.kill(os.getpid(), 9)", False),
        ("import os; os.read(0, 2)", False),
        ("", False),
        (READ_ALL + DAEMON.format(code=0, close="0"), False),
        (READ_ALL + DAEMON.format(code=0, close="[os.close(n) for n in (0, 1, 2)]"), False),
        (READ_ALL + "import os; os.fork() or os._exit(0)", True),
    ],
)
def test_l1_a_clean_end_is_known_as_one(code: str, well: bool) -> None:
    with fed(code) as channel:
        channel.write(b"abc", 5)
        while channel.read(10) != b"":
            continue
        assert channel.wait(10) is not None
        assert channel.ended_well() is well
    assert not channel.ended_well()


def test_a_clean_end_is_known_after_the_end_of_its_input() -> None:
    for read, well in ((True, True), (False, False)):
        with fed("import sys, time; time.sleep(0.5); sys.argv or sys.stdin.read()") as channel:
            channel.write(b"abc", 5)
            channel.end_input()
            assert channel.wait(20) == 0
            assert not channel.ended_well(), "what it had not read by then is never known"
        with fed("import sys; sys.stdin.read()" if read else "import time; time.sleep(1)") as two:
            two.write(b"abc", 5)
            assert two.drained(20 if read else 0.0) is read
            two.end_input()
            assert two.wait(20) == 0
            assert two.ended_well() is well


def test_an_end_by_our_signal_is_no_end_of_its_own() -> None:
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0));" + READ_ALL[11:]
    with fed(code + "print(flush=True); signal.pause()") as channel:
        channel.write(b"abc", 5)
        assert channel.read(20) == b"\n"
        channel.stop()
        assert channel.wait(5) == 0
        assert not channel.ended_well()

"""The in-memory twin keeps the contract of ``runtimes.process``, in virtual time."""

import math
import time
from collections.abc import Iterator

from penstock.runtimes.contract import PrivateFile, Runtime, RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.memory import Exit, MemoryRuntime, Sleep, StderrLine, Step


def script(arguments: list[str | bytes]) -> Iterator[Step]:
    yield repr(arguments).encode()
    yield Sleep(3600)
    yield StderrLine("token hunter2")
    yield b"late"
    yield Exit(3)
    raise AssertionError("nothing runs after the exit")


def test_conversation_in_virtual_time() -> None:
    logged: list[str] = []
    runtime = MemoryRuntime(script, masker=Masker(["hunter2"]), log_stderr=logged.append)
    as_contract: Runtime = runtime
    began = time.monotonic()
    with as_contract.open(["read", PrivateFile("config.json", b"{}")], RunTimeouts()) as channel:
        assert channel.read(1) == b"['read', b'{}']"
        assert channel.read(600) is None
        assert channel.wait(600) is None
        assert runtime.clock == 1200
        assert channel.wait(2400) is None, "unread output holds the connector back"
        assert runtime.clock == 3600
        assert channel.read(0) == b"late"
        assert channel.read(0) == b""
        assert channel.wait(0) == 3
        assert channel.stderr_tail() == "token ****"
    assert channel.wait(0) == 3
    assert logged == ["token ****"]
    assert runtime.runs == [["read", b"{}"]]
    assert time.monotonic() - began < 60  # of 3600


def test_hang_and_stop() -> None:
    closed: list[bool] = []

    def hangs(_: list[str | bytes]) -> Iterator[Step]:
        try:
            yield Sleep()
        finally:
            closed.append(True)

    runtime = MemoryRuntime(hangs)
    with runtime.open([], RunTimeouts()) as channel:
        assert channel.read(10800) is None
        channel.stop()
        channel.stop()
        assert channel.read(1) == b""
        assert channel.wait(0) == -15
    assert closed == [True]
    assert not math.isinf(runtime.clock)


def test_a_script_that_just_ends_exits_with_zero() -> None:
    with MemoryRuntime(lambda _: [b"", b"x"]).open([], RunTimeouts()) as channel:
        assert channel.read(0) == b"x"
        assert channel.read(0) == b""
        assert channel.wait(0) == 0

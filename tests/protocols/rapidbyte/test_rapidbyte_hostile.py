"""Hostile guests: each ends with the right error, and the process and its neighbours go on
(issue 5, "Must be shown"; L10, L11)."""

import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.errors import SourceError
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.events import ComponentLog, Frame, RunEnded
from penstock.protocols.rapidbyte.guest.host import HostBounds, HostFunctions
from penstock.protocols.rapidbyte.guest.retry import may_retry
from penstock.protocols.rapidbyte.guest.sockets import SocketBounds
from penstock.protocols.rapidbyte.guest.stage import HostMemory, Stage
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.protocols.rapidbyte.wire.messages import Refusal, StreamContext

Stages = Callable[..., Stage]
CONTEXT = StreamContext(stream_name="numbers", sync_mode="full_refresh")


def last(stage: Stage) -> RunEnded:
    *_, told = stream_run.read(stage, CONTEXT)
    assert isinstance(told, RunEnded)
    return told


def code(ended: RunEnded) -> str:
    assert ended.error is not None
    return ended.error.code


@pytest.fixture(autouse=True)
def neighbour(stage: Stages) -> Iterator[None]:
    """An honest guest in the same process sees nothing of it."""
    results: list[RunEnded] = []
    config = {"frames": 5, "size": 50_000}
    beside = threading.Thread(target=lambda: results.append(last(stage("source", config))))
    beside.start()
    yield
    beside.join(60)
    results.append(last(stage("source", config)))
    for ended in results:
        assert ended.error is None and ended.frames_out == 5
    assert len(results) == 2


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("mode", ["spin", "spin-through-host"])
@pytest.mark.parametrize("plain", [False, True])
def test_an_endless_loop(stage: Stages, mode: str, plain: bool):
    ended = last(stage("source", {"mode": mode}, plain=plain, allow={"timeout_seconds": 1}))
    assert code(ended) == "connector.timeout"
    assert ended.error is not None and "timeout_seconds" in (ended.error.hint or "")
    assert ended.worked < 30


def test_endless_memory(stage: Stages):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ended = last(stage("source", {"mode": "hog"}, allow={"max_memory": 32 << 20}))
    assert code(ended) == "connector.memory"
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 200 << 10  # KiB


def test_a_panic_under_a_memory_limit_is_no_want_of_memory(stage: Stages):
    """Only its own last words tell the two apart; the limit is named all the same."""
    ended = last(stage("source", {"mode": "trap"}, allow={"max_memory": 32 << 20}))
    assert code(ended) == "connector.crashed"
    assert ended.error is not None and "limits.max_memory: 33554432" in ended.error.message
    assert "raise" not in (ended.error.hint or "")


def test_a_million_log_lines(stage: Stages):
    """50,000 here: a line costs the same whatever its number."""
    told = list(stream_run.read(stage("source", {"mode": "logs", "n": 50_000}), CONTEXT))
    lines = [t.message for t in told if isinstance(t, ComponentLog)]
    assert len(lines) == 10_001
    assert lines[-1] == "40001 more lines of the connector's log were dropped"  # and "closed"
    assert isinstance(told[-1], RunEnded) and told[-1].error is None


def test_a_flood_leaves_room_for_warnings_and_errors(stage: Stages):
    bounds = HostBounds(log_lines=10, grave_lines=1)
    told = list(
        stream_run.read(stage("source", {"mode": "levels", "n": 50}, bounds=bounds), CONTEXT)
    )
    lines = [(t.level, t.message) for t in told if isinstance(t, ComponentLog)]
    assert lines[10:] == [
        ("WARN", "a warning"), ("ERROR", "an error"),
        ("WARN", "41 more lines of the connector's log were dropped"),
    ]  # fmt: skip


def test_ten_thousand_frames_never_dropped(stage: Stages):
    ended = last(stage("source", {"mode": "hoard", "n": 10_000}))
    assert ended.fault is not None and ended.fault.code == "FRAME_NEW_FAILED"
    assert "1024 frames are alive" in ended.fault.message


@pytest.mark.parametrize("plain", [False, True])
def test_a_frame_beyond_its_bound(stage: Stages, plain: bool):
    """Also where the writes are gathered: the next call that names the frame is told."""
    bounds = HostBounds(frames=FrameBounds(frame_bytes=700_000 if plain else 3 << 20))
    config = {"mode": "grow-frame", "n": 4, "piece": 1 << 18 if plain else 1 << 20}
    ended = last(stage("source", config, plain=plain, bounds=bounds))
    assert ended.fault is not None and ended.fault.code == "FRAME_WRITE_FAILED"
    assert ("700000 bytes" if plain else "3145728 bytes") in ended.fault.message


def test_all_frames_together_beyond_their_bound(stage: Stages):
    bounds = HostBounds(frames=FrameBounds(all_bytes=1000))
    ended = last(stage("source", {"mode": "hoard", "n": 2000}, bounds=bounds))
    assert ended.host_fault is not None and ended.host_fault.code == "FRAME_WRITE_FAILED"
    assert ended.error is not None and "1000 bytes" in ended.error.message


def test_four_gigabytes_in_one_write(stage: Stages):
    """As much as its memory may hold: the copy that is made of it has the same bound."""
    config = {"mode": "write-all", "size": 50 << 20}
    bounds = HostBounds(frames=FrameBounds(frame_bytes=1 << 20))
    ended = last(stage("source", config, allow={"max_memory": 64 << 20}, bounds=bounds))
    assert ended.fault is not None and ended.fault.code == "FRAME_WRITE_FAILED"
    config["size"] = (64 << 20) - (3 << 16)
    ended = last(stage("source", config, allow={"max_memory": 64 << 20}))
    assert code(ended) == "connector.memory"
    assert ended.error is not None and "did not fit" in ended.error.message
    ended = last(stage("source", {**config, "size": 4_200_000_000}))
    assert code(ended) == "connector.memory"
    assert ended.worked < 10  # nothing was copied


@pytest.mark.parametrize("plain", [False, True])
def test_a_list_beyond_its_memory_and_text_that_is_none(stage: Stages, plain: bool):
    for mode in ("list-beyond", "bad-text"):
        assert code(last(stage("source", {"mode": mode}, plain=plain))) == "connector.crashed"


def test_forged_handles_are_refused_one_by_one(stage: Stages):
    """The probe of the differential test forges them all; here that nothing else was reached."""
    told = list(stream_run.read(stage("source", {"mode": "probe"}), CONTEXT))
    lines = [t.message for t in told if isinstance(t, ComponentLog)]
    assert sum("invalid frame handle" in line for line in lines) >= 6
    assert sum(isinstance(t, Frame) for t in told) == 4


def test_a_denied_host_is_shown_whatever_the_guest_makes_of_it(stage: Stages):
    ended = last(stage("source", {"mode": "hide-error", "host": "db.example"}))
    assert ended.fault is not None and ended.fault.retryable  # the guest's story
    assert ended.host_fault is not None and ended.host_fault.code == "NETWORK_DENIED"
    assert ended.error is not None
    assert "NETWORK_DENIED: Host 'db.example' is not allowed" in ended.error.message
    assert not may_retry(ended.fault, ended.host_fault)


def test_a_refusal_that_it_went_on_from_does_not_explain_its_end(stage: Stages, listener: int):
    """Section 5: an optional host was denied, and what fails later may be tried again."""
    config = {"mode": "second-host", "denied": "db.example", "host": "127.0.0.1", "port": listener}
    ended = last(stage("source", config, allow={"hosts": ("127.0.0.1",)}))
    assert ended.fault is not None and ended.fault.code == "GONE"
    assert ended.host_fault is None and may_retry(ended.fault, ended.host_fault)
    assert ended.error is not None and "db.example" not in ended.error.message


@pytest.mark.parametrize("plain", [False, True])
def test_a_name_that_ends_before_its_end(stage: Stages, listener: int, plain: bool):
    """A resolver cuts at the NUL, and a pattern does not: the service of another would be read."""
    config = {"mode": "nul-host", "port": listener}
    allow = {"hosts": ("*.corp.test",), "private": True}
    ended = last(stage("source", config, allow=allow, plain=plain))
    assert ended.fault is not None and ended.fault.code == "NETWORK_DENIED"
    assert "neither the name of a host nor an address" in ended.fault.message


def test_any_host_is_not_this_machine(stage: Stages, listener: int):
    """A manifest's ``*`` or name reaches what lies outside; inside is the user's to name."""
    config = {"mode": "connect-twice", "host": "localhost", "ip": "127.0.0.1", "port": listener}
    for hosts in ("*",), ("localhost", "127.0.0.1"):
        ended = last(stage("source", config, allow={"hosts": hosts, "named": ()}))
        assert ended.fault is not None and ended.fault.code == "NETWORK_DENIED"
        assert "the pipeline does not name that host" in ended.fault.message
    ended = last(stage("source", config, allow={"hosts": ("*",), "named": (), "private": True}))
    assert ended.error is None


def test_a_second_connect_by_address(stage: Stages, listener: int):
    """The name is allowed, its address is not."""
    config = {"mode": "connect-twice", "host": "localhost", "ip": "127.0.0.1", "port": listener}
    ended = last(stage("source", config, allow={"hosts": ("localhost",)}))
    assert ended.fault is not None and ended.fault.code == "NETWORK_DENIED"
    assert "127.0.0.1" in ended.fault.message
    both = last(stage("source", config, allow={"hosts": ("localhost", "127.0.0.1")}))
    assert both.error is None


def test_sockets_are_bounded_and_closed_with_the_run(stage: Stages, listener: int):
    bounds = HostBounds(sockets=SocketBounds(sockets=8))
    config = {"mode": "many-sockets", "host": "127.0.0.1", "port": listener, "n": 20}
    ended = last(stage("source", config, allow={"hosts": ("127.0.0.1",)}, bounds=bounds))
    assert ended.fault is not None and ended.fault.code == "TOO_MANY_SOCKETS"


def test_a_flood_while_only_a_question_was_asked(stage: Stages):
    """Nobody takes frames then, and nothing piles up or waits."""
    said: list[ComponentLog] = []
    bounds = HostBounds(log_lines=10)
    asked = stage("source", {"mode": "open-flood", "n": 3000}, bounds=bounds)
    assert probe.check(asked, said.append).status == "success"
    assert len(said) == 10


def test_an_error_as_long_as_it_likes_is_cut(stage: Stages):
    ended = last(stage("source", {"mode": "echo-err", "n": 100_000}))
    assert ended.fault is not None and len(ended.fault.message) < 17_000
    assert "characters)" in ended.fault.message


def test_json_nested_without_end_is_an_error_of_the_call(stage: Stages):
    told = list(stream_run.read(stage("source", {"mode": "deep-json", "n": 1_000_000}), CONTEXT))
    lines = [t.message for t in told if isinstance(t, ComponentLog)]
    assert "PARSE_CHECKPOINT not JSON" in lines[0] and "PARSE_METRIC not JSON" in lines[1]
    assert isinstance(told[-1], RunEnded) and told[-1].error is None


def test_a_crash_is_told_with_its_trace(stage: Stages):
    ended = last(stage("source", {"mode": "trap"}))
    assert code(ended) == "connector.crashed"
    assert ended.error is not None and ended.error.connector is not None
    assert "wasm" in ended.error.connector["detail"]


@pytest.mark.parametrize("config", [{"mode": "open-trap"}, {"mode": "trap"}])
def test_after_a_trap_a_fresh_instance_starts_anew(stage: Stages, config: dict[str, Any]):
    assert last(stage("source", config)).error is not None
    assert last(stage("source", {"frames": 1})).error is None


# -- what its host holds for it (issue 9)


def test_its_frames_count_into_its_memory(stage: Stages):
    """An eighth of ``max_memory`` for frames that are alive, an eighth for those that wait."""
    share = HostMemory.of(64 << 20)
    assert (share.frames, share.waiting) == (8 << 20, 8 << 20)
    bounds = HostBounds(frames=FrameBounds(frame_bytes=share.frames, all_bytes=share.frames))
    config = {"mode": "grow-frame", "n": 12, "piece": 1 << 20}
    more = {"allow": {"max_memory": 64 << 20}, "bounds": bounds, "host_bytes": sum(share)}
    ended = last(stage("source", config, **more))
    assert ended.fault is not None and ended.fault.code == "FRAME_WRITE_FAILED"
    fits = {"mode": "write-all", "size": 60 << 20}  # beside its frames there is no room for that
    assert code(last(stage("source", fits, **more))) == "connector.memory"


def test_dead_letters_beyond_their_quota_end_the_run():
    """Not as a refusal: a guest that goes on from one loses a record in silence (L8)."""
    host = HostFunctions(
        "source", stream="s", instance="source", bounds=HostBounds(dead_letters=200)
    )
    host.emit_dlq_record("s", "x" * 80, "why", "data")
    with pytest.raises(SourceError) as caught:
        host.emit_dlq_record("s", "x" * 80, "why", "data")
    assert caught.value.code == "connector.dead_letters"
    assert "limits.max_dead_letters" in (caught.value.hint or "")


@pytest.mark.parametrize("letter", [("s" * 3000, "", ""), ("", "é" * 1500, ""), ("", "", "")])
def test_whatever_a_dead_letter_holds_counts(letter: tuple[str, str, str]):
    """The name of its stream too, bytes and not characters, and one that holds nothing."""
    host = HostFunctions(
        "source", stream="s", instance="source", bounds=HostBounds(dead_letters=6200)
    )
    with pytest.raises(SourceError, match="put aside more than"):
        for _ in range(100):
            host.emit_dlq_record(*letter, "data")


def test_keys_without_values_count():
    host = HostFunctions("source", stream="s", instance="source", bounds=HostBounds(keys=640))
    with pytest.raises(Refusal, match="would hold more"):
        for number in range(11):
            host.state_put(0, str(number), "")


def test_a_guest_that_puts_everything_aside_is_ended(stage: Stages):
    config = {"mode": "open-flood", "n": 3000}
    asked = stage("source", config, bounds=HostBounds(dead_letters=1000))
    with pytest.raises(SourceError) as caught:
        probe.check(asked, lambda _: None)
    assert caught.value.code == "connector.dead_letters"


def test_keys_beyond_their_quota_are_refused_and_one_written_again_counts_once():
    host = HostFunctions("source", stream="s", instance="source", bounds=HostBounds(keys=220))
    for _ in range(10):
        host.state_put(0, "key", "x" * 80)
    with pytest.raises(Refusal) as caught:
        host.state_put(0, "other", "x" * 80)
    assert caught.value.fault.code == "STATE_QUOTA"
    assert "limits.max_keys" in caught.value.fault.message
    assert host.state_get(0, "other") is None
    with pytest.raises(Refusal):
        host.state_cas(2, "other", None, "x" * 80)
    host.state_put(0, "key", "x")
    host.state_put(0, "other", "x" * 80)

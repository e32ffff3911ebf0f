"""The wasm runtime with components written as text: time, memory, faults that stay where they
belong (L10, L11; issue 5, part 2)."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import Cancelled
from penstock.runtimes.wasm.compile_cache import CompileCache
from penstock.runtimes.wasm.contract import Grants, GuestLimits, Trap, TrapKind
from penstock.runtimes.wasm.instance import Instance

HOST, GUEST = "t:t/host", "t:t/guest"

TEXT = f"""(component
  (import "{HOST}" (instance $host (export "wait" (func (param "n" u32) (result u32)))))
  (core func $wait (canon lower (func $host "wait")))
  (core module $m
    (import "h" "wait" (func $wait (param i32) (result i32)))
    (memory (export "memory") 2)
    (func (export "spin") (loop $l (br $l)))
    (func (export "call") (param i32) (result i32) (call $wait (local.get 0)))
    (func (export "trap") unreachable)
    (func (export "divide") (param i32) (result i32) (i32.div_u (i32.const 1) (local.get 0)))
    (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
    (func (export "work-and-call") (param i32) (result i32) (local $i i32)
      (loop $l
        (drop (call $wait (i32.const 1)))
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get 0))))
      (local.get $i)))
  (core instance $h (export "wait" (func $wait)))
  (core instance $i (instantiate $m (with "h" (instance $h))))
  (func $spin (canon lift (core func $i "spin")))
  (func $trap (canon lift (core func $i "trap")))
  (func $call (param "n" u32) (result u32) (canon lift (core func $i "call")))
  (func $divide (param "n" u32) (result u32) (canon lift (core func $i "divide")))
  (func $grow (param "n" u32) (result u32) (canon lift (core func $i "grow")))
  (func $work (param "n" u32) (result u32) (canon lift (core func $i "work-and-call")))
  (instance $guest (export "spin" (func $spin)) (export "trap" (func $trap))
    (export "call" (func $call)) (export "divide" (func $divide)) (export "grow" (func $grow))
    (export "work" (func $work)))
  (export "{GUEST}" (instance $guest)))"""

CACHE = CompileCache(None)


def opened(wait: Callable[[int], Any] = lambda n: n, **bounds: Any) -> Instance:
    component = CACHE.component(TEXT.encode())
    return Instance(component, {HOST: {"wait": wait}}, bounds=GuestLimits(**bounds))


def failed(instance: Instance, function: str, *arguments: Any) -> Trap:
    with pytest.raises(Trap) as caught:
        instance.call(GUEST, function, *arguments)
    return caught.value


def test_a_value_goes_in_and_comes_out():
    instance = opened(lambda n: n + 1)
    assert instance.call(GUEST, "call", 41) == 42
    instance.close()


def test_an_endless_loop_ends_at_its_time_and_leaves_the_process_unharmed():
    instance = opened(seconds=0.2)
    began = time.monotonic()
    trap = failed(instance, "spin")
    assert trap.kind is TrapKind.timeout
    assert "0.2 seconds" in trap.message
    assert time.monotonic() - began < 10
    assert instance.dead
    assert failed(instance, "call", 1) is trap  # whoever asks again is told the same
    other = opened()
    assert other.call(GUEST, "call", 5) == 5


def test_time_spent_waiting_for_a_peer_is_not_the_guests():
    held: list[Instance] = []

    def wait(n: int) -> int:
        with held[0].waiting():
            time.sleep(0.4)
        return n

    instance = opened(wait, seconds=1.0)
    held.append(instance)
    assert instance.call(GUEST, "work", 4) == 4
    assert instance.seconds < 1.0
    assert failed(instance, "spin").kind is TrapKind.timeout


SLEEPER = f"""(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $p (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $p))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $p0)) (export "pollable" (type $p (eq $p0)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core module $m
    (import "w" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "w" "block" (func $block (param i32)))
    (func $awake)
    (func (export "sleep") (param i64)
      (call $block (call $subscribe (local.get 0))) (call $awake)))
  (core instance $w (export "subscribe" (func $subscribe)) (export "block" (func $block)))
  (core instance $i (instantiate $m (with "w" (instance $w))))
  (func $sleep (param "n" u64) (canon lift (core func $i "sleep")))
  (instance $guest (export "sleep" (func $sleep)))
  (export "{GUEST}" (instance $guest)))"""


def test_sleep_is_the_guests_time_and_seen_by_who_waits_for_it():
    """No epoch reaches it there: it ends as it wakes, and until then its clock can be read."""
    component = CACHE.component(SLEEPER.encode())
    instance = Instance(component, {}, bounds=GuestLimits(seconds=0.3))
    traps: list[Trap] = []
    sleep = threading.Thread(target=lambda: traps.append(failed(instance, "sleep", 1_500_000_000)))
    sleep.start()
    time.sleep(1.0)
    assert not traps and instance.seconds > 0.8
    sleep.join(30)
    assert traps[0].kind is TrapKind.timeout and instance.seconds > 1.4
    instance.close()


def test_its_clock_stands_still_while_it_waits_for_a_peer():
    held: list[Instance] = []

    def wait(n: int) -> int:
        with held[0].waiting():
            waiting.set()
            answered.wait(30)
        return n

    waiting, answered = threading.Event(), threading.Event()
    held.append(instance := opened(wait, seconds=5.0))
    began = time.monotonic()
    call = threading.Thread(target=lambda: instance.call(GUEST, "call", 1))
    call.start()
    assert waiting.wait(30)
    at = instance.seconds
    time.sleep(0.3)
    assert instance.seconds == at
    answered.set()
    call.join(30)
    assert instance.seconds <= time.monotonic() - began - 0.3


def test_time_adds_up_over_calls():
    instance = opened(lambda n: (time.sleep(0.15), n)[1], seconds=1.5)
    assert instance.call(GUEST, "call", 1) == 1
    time.sleep(0.5)  # between two calls nobody works
    assert instance.call(GUEST, "call", 1) == 1
    assert failed(instance, "work", 1000).kind is TrapKind.timeout


def test_memory_is_bounded_and_a_start_above_the_bound_is_told_as_such():
    instance = opened(memory=3 << 16)
    assert instance.call(GUEST, "grow", 1) == 2
    assert instance.call(GUEST, "grow", 1) == 0xFFFFFFFF
    with pytest.raises(Trap) as caught:
        opened(memory=1 << 16)
    assert caught.value.kind is TrapKind.memory


def test_a_crash_under_a_bound_is_a_crash_and_names_it():
    """A guest that was refused memory may end so, but so does one that panics."""
    trap = failed(opened(memory=4 << 16), "trap")
    assert trap.kind is TrapKind.crashed and "limits.max_memory: 262144" in trap.message


def test_memories_share_the_bound():
    instance = opened(memory=6 << 16, memories=2)
    assert instance.call(GUEST, "grow", 1) == 2
    assert instance.call(GUEST, "grow", 1) == 0xFFFFFFFF
    two = """(component (core module $m (memory 1))
      (core instance (instantiate $m)) (core instance (instantiate $m)))"""
    component = CACHE.component(two.encode())
    Instance(component, {}, bounds=GuestLimits(memory=6 << 16, memories=2)).close()
    Instance(component, {}, bounds=GuestLimits(memory=6 << 16, transfer_memories=1)).close()
    with pytest.raises(Trap) as caught:
        Instance(component, {}, bounds=GuestLimits(memory=6 << 16, memories=1))
    assert caught.value.kind is TrapKind.refused


def test_a_crash_names_its_reason():
    trap = failed(opened(), "divide", 0)
    assert trap.kind is TrapKind.crashed
    assert "integer divide by zero" in trap.message


def test_a_function_that_is_not_exported_is_told():
    assert failed(opened(), "nothing").kind is TrapKind.refused
    assert not opened().exports(GUEST, "nothing")
    assert opened().exports(GUEST, "spin")


def test_a_fault_of_the_host_is_a_trap_with_its_cause_and_an_error_of_ours_comes_through():
    def wait(n: int) -> int:
        raise KeyError("lost")

    trap = failed(opened(wait), "call", 1)
    assert trap.kind is TrapKind.host
    assert isinstance(trap.__cause__, KeyError)

    def cancel(n: int) -> int:
        raise Cancelled("enough", code="cancelled")

    with pytest.raises(Cancelled):
        opened(cancel).call(GUEST, "call", 1)


def test_host_exceptions_never_leak_into_another_run():
    """Four threads, half of them with hosts that fail: each sees only its own fault."""
    seen: list[tuple[int, str]] = []

    def work(number: int) -> None:
        def wait(n: int) -> int:
            if number % 2:
                raise ValueError(f"of thread {number}")
            return n

        for _ in range(50):
            instance = opened(wait)
            try:
                instance.call(GUEST, "work", 3)
                seen.append((number, "fine"))
            except Trap as trap:
                seen.append((number, str(trap.__cause__)))
            finally:
                instance.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert len(seen) == 200
    assert set(seen) == {
        (0, "fine"), (1, "of thread 1"), (2, "fine"), (3, "of thread 3"),
    }  # fmt: skip


def test_a_closed_instance_is_gone_and_closing_again_does_nothing():
    instance = opened()
    instance.close()
    instance.close()
    assert failed(instance, "call", 1).kind is TrapKind.crashed


def test_a_granted_folder_that_is_missing_is_a_warning(tmp_path: Any):
    said: list[str] = []
    component = CACHE.component(TEXT.encode())
    grants = Grants(folders=(str(tmp_path / "none"), str(tmp_path)))
    Instance(component, {HOST: {"wait": abs}}, grants=grants, log=said.append).close()
    assert len(said) == 1 and "none" in said[0]


def test_a_forked_worker_compiles_and_runs():
    """A child of a process that has compiled: its pool and its clock are gone (never
    work after fork; but a worker that does must not hang)."""
    opened().close()
    pid = os.fork()
    if not pid:
        try:
            cache = CompileCache(None)
            instance = Instance(
                cache.component(TEXT.replace("wait", "rest").encode()),
                {HOST: {"rest": lambda n: n}},
                bounds=GuestLimits(seconds=0.1),
            )
            trap = None
            try:
                instance.call(GUEST, "spin")
            except Trap as e:
                trap = e.kind
            os._exit(0 if trap is TrapKind.timeout else 3)
        except BaseException:
            os._exit(4)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    pytest.fail("the child hung")

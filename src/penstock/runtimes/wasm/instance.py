"""Instantiates a component in a store of its own, calls its functions, and frees it.

An exception of a host function is kept in the instance and raised by the call that ran it, never
through wasmtime's own record of the last exception, which all threads share. Time is limited by
epochs, memory by the store's limits. An epoch interrupts a guest at its next instruction; a guest
that sleeps in a system call runs none, so its caller must read :attr:`Instance.seconds` and abandon
its thread. Not here: compiling (``compile_cache``), what the functions mean (``protocols``).
"""

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from wasmtime import Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, ExportIndex, Func, Linker
from wasmtime.component import Instance as WasmInstance

from penstock.errors import PenstockError
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.clock import TICK, clocked
from penstock.runtimes.wasm.contract import Grants, GuestLimits, Imports, Trap, TrapKind
from penstock.runtimes.wasm.guest_output import Stderr

_TABLE_ELEMENTS = 1 << 20
_TABLES = 64
_INSTANCES = 1000

# wasmtime-py keeps callbacks in tables that all threads share, without a lock.
_registering = threading.Lock()

MEMORY_SIGNS = ("memory allocation of ", "MemoryError", "out of memory", "Out of memory")


def _ignore(_: str) -> None:
    return


class _Times(NamedTuple):
    """Holds an instance's times, in seconds; replaced as a whole, because other threads read it.
    ``used``: by ended calls; ``since``, ``waiting_since``: the start of the current call and of its
    current wait; ``waited``: by ended waits of the current call."""

    used: float = 0.0
    since: float | None = None
    waited: float = 0.0
    waiting_since: float | None = None

    def elapsed(self) -> float:
        """Returns the seconds of the current call so far, without its waits; 0 between calls."""
        if self.since is None:
            return 0.0
        until = time.monotonic() if self.waiting_since is None else self.waiting_since
        return until - self.since - self.waited


class Instance:
    """Runs one instance of a component (``CallChannel``). ``transfer_trap``: the name of a function
    of the caller's adapter; a trap with that name in its stack means that memory ran out."""

    def __init__(
        self,
        component: Component,
        imports: Imports,
        *,
        grants: Grants | None = None,
        bounds: GuestLimits | None = None,
        masker: Masker | None = None,
        log: Callable[[str], None] = _ignore,
        transfer_trap: str | None = None,
    ) -> None:
        self._bounds = bounds or GuestLimits()
        self._stderr = Stderr(Masker() if masker is None else masker, log)
        self._transfer_trap = transfer_trap
        self._functions: dict[tuple[str, str], Func] = {}
        self._failure: BaseException | None = None
        self._trap: Trap | None = None
        self._times = _Times()
        self._waits = 0
        self._closed = False
        clock = clocked()
        self._clock = clock.ticking()
        self._store = Store(clock.engine)
        self._linker = Linker(clock.engine)
        self._clock.__enter__()
        try:
            self._limit()
            self._store.set_wasi(_wasi_of(grants or Grants(), self._stderr, log))
            self._link(imports)
            with self._running():
                self._instance = self._guarded(
                    lambda: self._linker.instantiate(self._store, component)
                )
        except BaseException:
            self.close()
            raise

    def call(self, interface: str, function: str, *arguments: Any) -> Any:
        if self._trap is not None:
            raise self._trap
        if self._closed:
            raise Trap(TrapKind.crashed, "it was closed")
        found = self._function(interface, function)
        with self._running():
            return self._guarded(lambda: found(self._store, *arguments))

    def exports(self, interface: str, function: str) -> bool:
        """Returns whether the component exports a function."""
        with contextlib.suppress(Trap):
            self._function(interface, function)
            return True
        return False

    @contextmanager
    def waiting(self) -> Generator[None]:
        self._waits += 1
        if self._waits == 1:
            self._times = self._times._replace(waiting_since=time.monotonic())
        try:
            yield
        finally:
            self._waits -= 1
            began = self._times.waiting_since
            if not self._waits and began is not None:
                waited = self._times.waited + time.monotonic() - began
                self._times = self._times._replace(waited=waited, waiting_since=None)
                self._set_deadline()

    def stderr_tail(self) -> str:
        return self._stderr.tail()

    @property
    def dead(self) -> bool:
        """Returns whether it trapped, so that it cannot be called again."""
        return self._trap is not None

    @property
    def seconds(self) -> float:
        """Returns the seconds of guest work so far, sleep included. May be read by another
        thread."""
        times = self._times
        return times.used + times.elapsed()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._functions.clear()
        with _registering:
            self._linker.close()
            self._store.close()
        self._clock.__exit__(None, None, None)

    # -- limits

    def _limit(self) -> None:
        bounds = self._bounds
        own = -1 if bounds.memory is None else max(0, bounds.memory - bounds.host_bytes)
        memory = own if own < 0 else own // bounds.memories
        self._store.set_limits(
            memory_size=memory,
            table_elements=_TABLE_ELEMENTS,
            instances=_INSTANCES,
            tables=_TABLES,
            memories=bounds.memories + bounds.transfer_memories,
        )

    def _set_deadline(self) -> None:
        left = self._bounds.seconds - self.seconds
        self._store.set_epoch_deadline(max(1, math.ceil(left / TICK) + 1))

    @contextmanager
    def _running(self) -> Generator[None]:
        self._times = _Times(self._times.used, time.monotonic())
        self._set_deadline()
        try:
            yield
        finally:
            self._times = _Times(self.seconds)

    # -- calls

    def _link(self, imports: Imports) -> None:
        with _registering:
            self._linker.add_wasip2()
            with self._linker.root() as root:
                for interface, functions in imports.items():
                    with root.add_instance(interface) as instance:
                        for name, function in functions.items():
                            instance.add_func(name, self._kept(name, function))

    def _kept(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(_store: Any, *arguments: Any) -> Any:
            if self._failure is not None:
                raise WasmtimeError(f"host function {name}: the instance failed before")
            try:
                return function(*arguments)
            except BaseException as e:
                self._failure = e
                raise WasmtimeError(f"host function {name} failed") from None

        return run

    def _function(self, interface: str, function: str) -> Func:
        known = self._functions.get((interface, function))
        if known is not None:
            return known
        instance: WasmInstance = self._instance
        index: ExportIndex | None = instance.get_export_index(self._store, interface)
        inner = index and instance.get_export_index(self._store, function, index)
        found = inner and instance.get_func(self._store, inner)
        if not found:
            raise Trap(TrapKind.refused, f"it does not export {interface}#{function}")
        self._functions[interface, function] = found
        return found

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except WasmtimeError as e:
            failure, self._failure = self._failure, None
            self._trap = self._explained(str(e), failure)
            if isinstance(failure, PenstockError) or (
                failure is not None and not isinstance(failure, Exception)
            ):
                raise failure from self._trap
            raise self._trap from (failure or e)

    def _explained(self, detail: str, failure: BaseException | None) -> Trap:
        kind, message = self._trap_kind(detail, failure)
        return Trap(kind, message, detail=detail, stderr=self.stderr_tail())

    def _trap_kind(self, detail: str, failure: BaseException | None) -> tuple[TrapKind, str]:
        limit = self._bounds.memory
        if failure is not None:
            return TrapKind.host, f"a function of its host failed: {failure!r}"
        if "wasm trap: interrupt" in detail:
            return TrapKind.timeout, f"it worked longer than {self._bounds.seconds:g} seconds"
        if "exceeds memory limits" in detail:
            return TrapKind.memory, f"it needs more than the {limit} bytes it may use to start"
        if "resource limit exceeded" in detail:
            return TrapKind.refused, f"it requests more than it may use: {_reason(detail)}"
        if self._transfer_trap and self._transfer_trap in detail:
            return TrapKind.memory, "what it handed over did not fit into the memory it may use"
        if any(sign in self.stderr_tail() for sign in MEMORY_SIGNS):
            return TrapKind.memory, "it ran out of memory"
        if "Exited with i32 exit status" in detail:
            return TrapKind.exited, "it ended itself: " + detail.rpartition("\n")[2].strip()
        return TrapKind.crashed, f"it crashed: {_reason(detail)}{_under(limit)}"


def _under(limit: int | None) -> str:
    """Returns a text on the memory limit, for a crash: a guest without more memory may end in any
    way."""
    return "" if limit is None else f" (limits.max_memory: {limit} bytes)"


def _reason(detail: str) -> str:
    """Returns the cause in a message of wasmtime's, without the stack."""
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    for line in reversed(lines):
        if "wasm trap:" in line:
            return line.partition("wasm trap:")[2].strip()
    return lines[-1] if lines else "no reason given"


def _wasi_of(grants: Grants, stderr: Stderr, warn: Callable[[str], None]) -> WasiConfig:
    """Makes the WASI configuration of a guest, the parts of the system that it can reach: granted
    variables and folders, clocks and randomness; no arguments, no input, no network, and its stdout
    is dropped. Leaves out a granted folder that does not exist, and calls ``warn``. Raises
    :class:`Trap` (``refused``) for a folder that cannot be opened."""
    config = WasiConfig()
    config.env = [(name, value) for name, value in sorted(grants.env.items())]
    config.stderr_custom = stderr.write
    given = [(folder, True) for folder in grants.folders]
    for folder, writable in (*given, *((folder, False) for folder in grants.read_only)):
        host = os.path.join(grants.start, folder)
        if not Path(host).is_dir():
            warn(f"the folder {folder} does not exist here: the connector will not see it")
            continue
        try:
            config.preopen_dir(host, folder, writable)
        except WasmtimeError as e:
            raise Trap(
                TrapKind.refused, f"the folder {folder} cannot be opened", detail=str(e)
            ) from e
    return config

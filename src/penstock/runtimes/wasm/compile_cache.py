"""Compiles a component's binary once, and keeps its native code where only the user can write.

A kept file is machine code that runs with all the user's rights, so it is loaded only from a folder
that belongs to this user and that no one else can write, nor any folder above it. If the folder
is not, or cannot be written, every start compiles again, and :func:`take_problems`
reports it once. Not here: what the binary is (``protocols``).
"""

import contextlib
import hashlib
import os
import platform
import stat
import threading
from collections import OrderedDict, deque
from importlib.metadata import version
from pathlib import Path

from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component

from penstock.files import replace
from penstock.runtimes.trusted_folders import OTHERS_WRITE, unsafe
from penstock.runtimes.wasm.clock import clocked
from penstock.runtimes.wasm.contract import Trap, TrapKind

_SUFFIX = ".cwasm"
_MOST_KEPT = 8  # compiled components kept in the memory of a process

_known: set[str] = set()
_untold: deque[str] = deque()


def take_problems() -> list[str]:
    """Returns the reasons why compiled code is not kept in this process, each only once."""
    taken: list[str] = []
    with contextlib.suppress(IndexError):
        while True:
            taken.append(_untold.popleft())
    return taken


class CompileCache:
    """Compiles components, and keeps their native code in ``folder`` (None: nowhere). ``problem``:
    the reason why a folder that was given is not used."""

    def __init__(self, folder: Path | None) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._lock = threading.Lock()
        self._ready: OrderedDict[tuple[int, str], Component] = OrderedDict()
        if folder is not None:
            self.problem = unsafe(folder)
            if self.problem is not None:
                self._give_up(self.problem)

    def component(self, binary: bytes) -> Component:
        """Returns the compiled component of a binary. Raises :class:`Trap` (``refused``) where the
        binary is no valid component."""
        key = _key(binary)
        here = (os.getpid(), key)
        with self._lock:
            if here in self._ready:
                self._ready.move_to_end(here)
                return self._ready[here]
            engine = clocked().engine
            component = self._kept(engine, key) or self._compiled(engine, key, binary)
            self._ready[here] = component
            while len(self._ready) > _MOST_KEPT:
                self._ready.popitem(last=False)
            return component

    def _kept(self, engine: Engine, key: str) -> Component | None:
        if self._folder is None:
            return None
        path = self._folder / f"{key}{_SUFFIX}"
        try:
            found = path.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or (
            found.st_mode & OTHERS_WRITE
        ):  # fmt: skip
            return None
        try:
            return Component.deserialize_file(engine, str(path))
        except WasmtimeError:
            # Damaged, or made on a machine with another processor: it is made again.
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def _compiled(self, engine: Engine, key: str, binary: bytes) -> Component:
        try:
            component = Component(engine, binary)
        except WasmtimeError as e:
            raise Trap(
                TrapKind.refused, "it is not a valid WebAssembly component", detail=str(e)
            ) from e
        if self._folder is not None:
            try:
                replace(self._folder / f"{key}{_SUFFIX}", component.serialize())
            except OSError as e:
                self._give_up(f"{self._folder}: {e.strerror or e}")
        return component

    def _give_up(self, problem: str) -> None:
        self.problem, self._folder = problem, None
        if problem not in _known:
            _known.add(problem)
            _untold.append(f"compiled components are not kept, so each start compiles: {problem}")


def _key(binary: bytes) -> str:
    digest = hashlib.sha256(binary)
    digest.update(f"\0{version('wasmtime')}\0{platform.machine()}\0{platform.system()}".encode())
    return digest.hexdigest()

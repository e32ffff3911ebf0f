"""A binary becomes a component: compiled once, and kept as native code where nobody else can write.

A kept file is machine code that runs with all our rights, so it is loaded only from a folder that
belongs to this user and that no one else can write, nor any folder above it; elsewhere every start
compiles anew. Not here: what the binary is (``protocols``).
"""

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
import threading
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path

from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component

from penstock.runtimes.wasm.contract import Trap, TrapKind
from penstock.runtimes.wasm.engine import clocked

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SUFFIX = ".cwasm"
_HELD = 8  # components held ready in a process


class CompileCache:
    """``folder`` None: nothing is kept. ``problem``: why a folder that was given is not used."""

    def __init__(self, folder: Path | None) -> None:
        self.problem: str | None = None
        self._folder = folder
        self._lock = threading.Lock()
        self._ready: OrderedDict[tuple[int, str], Component] = OrderedDict()
        if folder is not None:
            self.problem = _unsafe(folder)
            if self.problem is not None:
                self._folder = None

    def component(self, binary: bytes) -> Component:
        """Raises :class:`Trap` (``refused``) for what is no valid component."""
        key = _key(binary)
        here = (os.getpid(), key)
        with self._lock:
            if here in self._ready:
                self._ready.move_to_end(here)
                return self._ready[here]
            engine = clocked().engine
            component = self._kept(engine, key) or self._compiled(engine, key, binary)
            self._ready[here] = component
            while len(self._ready) > _HELD:
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
            found.st_mode & _OTHERS_WRITE
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
                TrapKind.refused, "it is no valid WebAssembly component", detail=str(e)
            ) from e
        if self._folder is not None:
            with contextlib.suppress(OSError):
                _write(self._folder, f"{key}{_SUFFIX}", component.serialize())
        return component


def _key(binary: bytes) -> str:
    digest = hashlib.sha256(binary)
    digest.update(f"\0{version('wasmtime')}\0{platform.machine()}\0{platform.system()}".encode())
    return digest.hexdigest()


def _write(folder: Path, name: str, content: bytes | bytearray) -> None:
    fd, temporary = tempfile.mkstemp(prefix=".making-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(content)
        os.replace(temporary, folder / name)
    except BaseException:
        os.unlink(temporary)
        raise


def _unsafe(folder: Path) -> str | None:
    """Why native code must not be loaded from there; the folder is made where it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder.resolve(strict=True)
        found = path.stat()
        if found.st_uid != os.geteuid():
            return f"{path} belongs to another user"
        if found.st_mode & _OTHERS_WRITE:
            return f"{path} can be written by other users"
        for parent in path.parents:
            above = parent.stat()
            if above.st_uid not in (0, os.geteuid()):
                return f"{parent} belongs to another user"
            if above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX:
                return f"{parent} can be written by other users"
    except OSError as e:
        return f"{folder}: {e.strerror or e}"
    return None

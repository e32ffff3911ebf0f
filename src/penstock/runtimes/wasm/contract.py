"""Defines the interface of a runtime that calls a component's functions, and the error ``Trap``.

``protocols/*`` give :data:`Imports` and call a :class:`CallChannel`; ``runtimes.wasm.instance``
implements it. Arguments and results are wasmtime's plain Python values. Not here: runtimes that
transfer bytes (``runtimes.contract``).
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

Imports = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Interface name -> function name -> host function, which gets the guest's arguments alone. An
exception in it ends the guest; see :meth:`CallChannel.call`."""


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the parts of the system that a component can reach; by default none, and never the
    network. ``env``: variables. ``folders``: host folders that it can write, at the same path
    inside; ``read_only``: host folders that it can only read. ``start``: where relative ones start;
    empty: the process's folder."""

    env: dict[str, str] = {}
    folders: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    start: str = ""


class GuestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the limits of a guest. ``memory``: bytes in all; None: unlimited. ``host_bytes``: the
    part of them that the host holds for the guest; the rest is shared equally by its memories, at
    most ``memories``. ``transfer_memories``: further memories, each as large, that the caller's
    adapter adds. ``seconds``: of the guest's work in all its calls together; time spent in
    ``CallChannel.waiting`` does not count."""

    memory: int | None = None
    host_bytes: int = 0
    memories: int = 1
    transfer_memories: int = 0
    seconds: float = 300.0


class TrapKind(StrEnum):
    """The reason why a guest ended."""

    timeout = "timeout"
    memory = "memory"  # it certainly, or very likely, had no more memory
    exited = "exited"  # it called exit
    host = "host"  # a host function that it called failed
    refused = "refused"  # it could not be compiled or instantiated, or lacks an export
    crashed = "crashed"


class Trap(Exception):
    """Raised where a guest ended and cannot be called again. ``detail``: wasmtime's message, with
    the guest's stack where there is one; ``stderr``: the last lines that the guest printed."""

    def __init__(self, kind: TrapKind, message: str, *, detail: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.stderr = stderr


class CallChannel(Protocol):
    """Calls the functions of one instance of a component, from one thread at a time."""

    def call(self, interface: str, function: str, *arguments: Any) -> Any:
        """Calls an exported function. Raises :class:`Trap`, also for every call after a trap;
        re-raises an exception of a host function where it is a ``PenstockError`` or not an
        ``Exception``."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Stops the guest's clock inside, for host functions that wait for a peer."""
        ...

    def stderr_tail(self) -> str:
        """Returns the last lines that the guest printed to stderr, with secrets masked."""
        ...

    def close(self) -> None:
        """Frees the instance's memory. Idempotent."""
        ...

"""The contract of a runtime that offers calls: a component's functions, and how it ends.

Neighbours: ``protocols/*`` give :data:`Imports` and drive a :class:`CallChannel`;
``runtimes.wasm.instance`` implements it. A value that crosses is a plain one of wasmtime's.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

Imports = Mapping[str, Mapping[str, Callable[..., Any]]]
"""Interface name -> function name -> what it does. A function gets the arguments alone. Whatever it
raises ends the guest and is raised again by the call that ran it."""


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """What a component sees of the system; nothing by default, and never the network.
    ``env``: names and values. ``folders``: host folders, at the same path inside, writable;
    ``read_only``: such that are not."""

    env: dict[str, str] = {}
    folders: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """``memory``: bytes that the guest's memories may hold together; None: unlimited. ``aside``: of
    these, what its host holds for it, and its memories may not.
    ``memories``: how many it may have. ``transfer_memories``: of how many more, each as large, the
    runtime's caller has need. ``seconds``: of guest work, from its first call to its last; time
    spent in ``CallChannel.waiting`` does not count."""

    memory: int | None = None
    aside: int = 0
    memories: int = 1
    transfer_memories: int = 0
    seconds: float = 300.0


class TrapKind(StrEnum):
    timeout = "timeout"
    memory = "memory"  # it certainly, or very likely, had no more memory
    exited = "exited"  # it ended itself
    host = "host"  # a function that it called failed
    refused = "refused"  # it could not be instantiated
    crashed = "crashed"


class Trap(Exception):
    """The guest is gone. ``detail``: the runtime's own words, with the guest's stack where there is
    one; ``stderr``: the last lines that the guest printed."""

    def __init__(self, kind: TrapKind, message: str, *, detail: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.stderr = stderr


class CallChannel(Protocol):
    """One instance, for one thread at a time, from its first call until it is closed."""

    def call(self, interface: str, function: str, *arguments: Any) -> Any:
        """Raises :class:`Trap`, also for every call after a trap; and what a host function raised,
        where that is an error of ours."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Time inside is not the guest's: for host functions that wait for a peer."""
        ...

    def stderr_tail(self) -> str: ...

    def close(self) -> None:
        """Free its memory. Idempotent."""
        ...

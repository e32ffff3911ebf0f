"""The contract of a runtime that speaks bytes (stdin, stdout, stderr), what one is started with,
and what talking to it took.

Neighbours: ``protocols/*`` drive a :class:`ByteChannel`, and nobody above them has one;
``runtimes.process`` and its twin ``runtimes.memory`` implement it, ``runtimes.metered`` measures
either. A component has no such channel: its contract is ``runtimes.wasm.contract``. Every wait
takes a bound.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.errors import Role


class PrivateFile(msgspec.Struct, frozen=True):
    """An argument that is the path of a file with this content: mode 0600, in a folder of mode 0700
    that is always removed when the channel closes."""

    name: str
    content: bytes
    writable: bool = False  # the connector may change it: see ``ByteChannel.private``


Argument = str | PrivateFile


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. ``start``: until the first byte; ``heartbeat``: between records or states, enforced
    by the protocol, which alone knows what those are; ``total``: of the whole conversation;
    ``stop``: between SIGTERM and SIGKILL."""

    start: float = 300.0
    heartbeat: float = 10800.0
    total: float | None = None
    stop: float = 10.0


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A WebAssembly component as data. ``digest``: SHA-256 of its file, in hexadecimal. ``cache``:
    where compiled code is kept, if anywhere. ``settings``: what the pipeline says of it, in
    Penstock's words, for its protocol to read (``place``: ``source``, ``transform:0``, ...).
    ``agreements``: the folder where the user's yes to what it asks for is kept."""

    path: str
    digest: str
    cache: str | None = None
    settings: dict[str, Any] = {}
    agreements: str | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector is started with on this host. ``env``: settings that are no secret.
    ``env_keys``: variables handed on from the environment of whoever starts it. ``permissions``,
    ``limits``: what the user says that it may reach and use. ``component``: it is a WebAssembly
    component, and ``command`` is empty. ``role``: whose failures those of starting it are."""

    role: Role = "source"
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    env_keys: tuple[str, ...] = ()
    permissions: Permissions | None = None
    limits: Limits | None = None
    component: Component | None = None


class ConnectionStats(msgspec.Struct):
    """What talking to a connector has taken so far. ``wait_seconds``: for what it says,
    ``first_byte_seconds``: of these, until it said anything; ``write_seconds``: for it to take what
    it is fed. ``bytes`` that it gave, ``written`` bytes that it took. ``spoke``: it gave anything
    at all."""

    wait_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    write_seconds: float = 0.0
    bytes: int = 0
    written: int = 0
    spoke: bool = False


class ByteChannel(Protocol):
    """One run of a connector. A context manager: on exit the whole process tree is gone and the
    private files are removed, whatever happened."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...

    def read(self, timeout: float) -> bytes | None:
        """The next bytes of stdout, at most a few MB: ``b""`` at its end, None when ``timeout``
        seconds passed with nothing. Not reading is what holds the connector back."""
        ...

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """Give stdin some of ``data``: how many bytes it took within ``timeout`` seconds, 0 where
        it took none. Raises ``BrokenPipeError`` once nobody reads it. Only where it was opened with
        ``feed``. May be called from another thread than :meth:`read`."""
        ...

    def drained(self, timeout: float) -> bool:
        """True once all that was written has been read by the connector; False where that takes
        longer than ``timeout`` seconds. Raises ``BrokenPipeError`` where it never will be. True
        where the system cannot tell."""
        ...

    def end_input(self) -> None:
        """Close stdin: nothing follows. Idempotent."""
        ...

    def private(self, name: str) -> bytes | None:
        """What the private file ``name`` holds now, as long as the channel is open; None where it
        is gone."""
        ...

    def wait(self, timeout: float) -> int | None:
        """The exit code (negative: killed by that signal); None when it still runs after
        ``timeout`` seconds."""
        ...

    def stop(self) -> None:
        """SIGTERM to the whole tree, SIGKILL after ``Timeouts.stop`` seconds. Idempotent."""
        ...

    def stderr_tail(self) -> str:
        """The last lines (at most 8 KiB) of stderr, secrets masked."""
        ...


class Runtime(Protocol):
    """Something that can be started any number of times with different arguments."""

    def open(
        self, arguments: Sequence[Argument], timeouts: Timeouts, *, feed: bool = False
    ) -> ByteChannel:
        """Start it; ``feed``: with a stdin that is written to (else it is at its end at once).
        Raises the error of its role (``code`` ``connector.not_found``,
        ``connector.not_executable``, ``connector.start_failed``)."""
        ...

"""Defines the interface of a runtime that transfers bytes (stdin, stdout, stderr), the start
parameters of a connector, and the statistics of a connection.

``protocols/*`` use a :class:`ByteChannel`; no layer above them has one. ``runtimes.process``,
``runtimes.container`` and, for tests, ``runtimes.memory`` implement it; ``runtimes.metered``
measures any. Every wait takes a timeout (L11). Not here: components, which have no such channel
(``runtimes.wasm.contract``).
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import msgspec

from penstock.config.sections import ContainerSettings, Limits, Permissions
from penstock.errors import Role


class PrivateFile(msgspec.Struct, frozen=True):
    """Describes an argument that is the path of a file with this content. The file has mode 0600,
    in a folder of mode 0700 that is removed when the channel closes."""

    name: str
    content: bytes
    writable: bool = False  # the connector may change it: see ``ByteChannel.private``


Argument = str | PrivateFile


class RunTimeouts(msgspec.Struct, frozen=True):
    """Holds the timeouts of a run, in seconds. ``start``: until the first byte; ``heartbeat``:
    between records or states, enforced by the protocol, which recognises them; ``total``: for the
    whole run; ``stop``: between SIGTERM and SIGKILL."""

    start: float = 300.0
    heartbeat: float = 10800.0
    total: float | None = None
    stop: float = 10.0


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a WebAssembly component. ``digest``: SHA-256 of its file, in hexadecimal.
    ``cache``: the folder for compiled code; None: it is not kept. ``settings``: for its protocol,
    the connector's keys in the pipeline file (``place``: ``source``, ``transform:0``, ...).
    ``agreements``: the folder that stores the user's consent to the permissions that components
    request."""

    path: str
    digest: str
    cache: str | None = None
    settings: dict[str, Any] = {}
    agreements: str | None = None


PullPolicy = Literal["missing", "always", "never"]
"""When an image is pulled: where it is not on the machine; before each use; never."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a container image. ``id``: the engine's id of its content; ``digest``: its
    registry's, if it came from one. ``entrypoint``: what it starts, by default with ``command`` as
    arguments. ``user``: the number of its user; None: unknown. ``shell``: it has a ``/bin/sh``."""

    reference: str
    id: str
    digest: str | None = None
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: int | None = None
    shell: bool = False


class SharedFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Names the folders of this machine that a connector and Penstock both see under one path, so
    that the connector may name files in them. ``cwd``: where its relative paths begin; None: it has
    a file system of its own and sees nothing else of this machine. ``user``: the number of the user
    that it runs as, who must be allowed to open the named files; None: the same as Penstock's, or
    unknown."""

    paths: tuple[str, ...] = ()
    cwd: str | None = None
    user: int | None = None


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the start parameters of a connector on this host. ``env``: variables that hold no
    secret. ``env_keys``: names of variables to pass on from this process's environment.
    ``permissions``, ``limits``: the user's. ``component``: the connector is a WebAssembly
    component; ``image``: it is a container of this image, run with the settings ``container``;
    ``command`` is empty then. ``role``: the role whose error class is raised."""

    role: Role = "source"
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    env_keys: tuple[str, ...] = ()
    permissions: Permissions | None = None
    limits: Limits | None = None
    component: Component | None = None
    image: Image | None = None
    container: ContainerSettings = ContainerSettings()


class ConnectionStats(msgspec.Struct):
    """Counts the time and bytes of a connection so far. ``wait_seconds``: spent waiting for the
    connector's output, of these ``first_byte_seconds`` until its first byte; ``write_seconds``:
    spent writing its input. ``bytes``: of its output; ``written``: of its input. ``spoke``: it has
    written any output."""

    wait_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    write_seconds: float = 0.0
    bytes: int = 0
    written: int = 0
    spoke: bool = False


class ByteChannel(Protocol):
    """Reads and writes one run of a connector. A context manager: on exit it kills the whole
    process tree and removes the private files, also after an exception."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None: ...

    def read(self, timeout: float) -> bytes | None:
        """Returns the next bytes of stdout, at most a few MB; ``b""`` at its end; None where none
        arrive within ``timeout`` seconds. A connector whose stdout is not read blocks."""
        ...

    def write(self, data: bytes | memoryview, timeout: float) -> int:
        """Writes some of ``data`` to stdin; returns the number of bytes written within ``timeout``
        seconds, 0 where the pipe is full. Raises ``BrokenPipeError`` where the connector no longer
        reads, or the channel was opened without ``feed``. May be called from another thread than
        :meth:`read`."""
        ...

    def drained(self, timeout: float) -> bool:
        """Waits until the connector has read all that was written; returns False where that takes
        longer than ``timeout`` seconds, and True where the system does not know. Raises
        ``BrokenPipeError`` where bytes are left and the connector no longer reads."""
        ...

    def end_input(self) -> None:
        """Closes stdin. Idempotent."""
        ...

    def private(self, name: str) -> bytes | None:
        """Returns the content of the private file ``name``, while the channel is open; None where
        the file is gone."""
        ...

    def wait(self, timeout: float) -> int | None:
        """Waits for the exit code (negative: killed by that signal); returns None where the
        connector still runs after ``timeout`` seconds."""
        ...

    def ended_well(self) -> bool:
        """Returns whether the connector is known to have ended by itself with exit code 0, after
        reading every byte of its input: nothing that it started is left, and this channel sent it
        no signal. False where the system does not know. Call it after :meth:`wait`."""
        ...

    def stop(self) -> None:
        """Sends SIGTERM to the whole process tree, and SIGKILL after ``RunTimeouts.stop`` seconds.
        Idempotent."""
        ...

    def stderr_tail(self) -> str:
        """Returns the last lines of stderr, at most 8 KiB, with secrets masked."""
        ...


class Runtime(Protocol):
    """Starts a connector, any number of times with different arguments."""

    def open(
        self, arguments: Sequence[Argument], timeouts: RunTimeouts, *, feed: bool = False
    ) -> ByteChannel:
        """Starts the connector. ``feed``: its stdin is written to; else it is empty. Raises the
        error of its role (``code`` ``connector.not_found``, ``connector.not_executable``,
        ``connector.start_failed``)."""
        ...

    def shared_folders(self) -> SharedFolders:
        """Returns the folders in which the connector may name files."""
        ...

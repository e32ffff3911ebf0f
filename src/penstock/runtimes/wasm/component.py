"""A WebAssembly component that can be run: its file, what it may use, and what running it took.

Not here: what is inside and how it is called (``protocols``), compiled code (``compile_cache``).
Light: wasmtime is not imported. Neighbours: ``connectors.launch`` makes one of a ``Component``.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.config.sections import Limits, Permissions
from penstock.errors import Defect, Role, error_class
from penstock.runtimes.contract import Argument, Component, Timeouts
from penstock.runtimes.masking import Masker
from penstock.state.keys import KeyPort, MemoryKeys

if TYPE_CHECKING:
    from penstock.runtimes.wasm.compile_cache import CompileCache


OpenKeys = Callable[[], KeyPort]


class ComponentRuntime:
    """The ``Runtime`` of a component, whose protocol calls it in place of :meth:`open`. ``keys``:
    opens a port to its own state, one for each conversation; None: in memory, for as long as this
    object lives. ``log_stderr`` gets what the connector prints, line by line. ``role``: whose
    failures its errors are. Measured by whoever calls it, seconds and bytes as in
    ``engine.worker.meter``; ``spoke``: it gave an answer."""

    def __init__(
        self,
        component: Component,
        *,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        secrets: Sequence[str] = (),
        log_stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
        role: Role = "source",
    ) -> None:
        self.component = component
        self.role: Role = role
        self.permissions, self.limits = permissions, limits
        self.masker = Masker(secrets)
        self.log_stderr = log_stderr
        own = MemoryKeys()
        self.keys: OpenKeys = keys or (lambda: own)
        self.wait_seconds = self.first_byte_seconds = self.write_seconds = 0.0
        self.bytes = self.written = 0
        self.spoke = False

    def open(
        self, arguments: Sequence[Argument], timeouts: Timeouts, *, feed: bool = False
    ) -> NoReturn:
        raise Defect("a WebAssembly component has no stdin and no stdout")

    def binary(self) -> bytes:
        """Raises its role's error (``connector.not_found``, ``connector.changed``)."""
        path = Path(self.component.path)
        try:
            content = path.read_bytes()
        except OSError as e:
            raise error_class(self.role)(
                f"the component {path} cannot be read: {e.strerror}",
                code="connector.not_found",
                hint="on a cluster the file must lie at the same path on every worker",
            ) from None
        if digest_of(content) != self.component.digest:
            raise error_class(self.role)(
                f"the component {path} is not the file that was planned with",
                code="connector.changed",
                hint="run again; on a cluster every worker needs the same file",
            )
        return content

    def cache(self) -> "CompileCache":
        """Where its compiled code is kept, if it can be."""
        from penstock.runtimes.wasm.compile_cache import CompileCache

        folder = self.component.cache
        return CompileCache(None if folder is None else Path(folder))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

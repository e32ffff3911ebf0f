"""A WebAssembly component that can be run: its file, what it may use, and what running it took.

Not here: what is inside and how it is called (``protocols``), compiled code (``compile_cache``).
Light: wasmtime is not imported. Neighbours: ``connectors.launch`` makes one of a ``Component``.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.sections import Limits, Permissions
from penstock.errors import Role, error_class
from penstock.runtimes.contract import Component, ConnectionStats
from penstock.runtimes.masking import Masker
from penstock.state.keys import MemoryKeys, OpenKeys

if TYPE_CHECKING:
    from penstock.runtimes.wasm.compile_cache import CompileCache


class ComponentRuntime:
    """A component that can be instantiated any number of times. ``keys``: opens a port to its own
    state, one for each conversation; None: in memory, for as long as this object lives.
    ``log_stderr`` gets what the connector prints, line by line, masked by ``masker``. ``role``:
    whose failures its errors are. ``stats``: filled by whoever calls it."""

    def __init__(
        self,
        component: Component,
        *,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        masker: Masker | None = None,
        stats: ConnectionStats | None = None,
        log_stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
        role: Role = "source",
    ) -> None:
        self.component = component
        self.role: Role = role
        self.permissions, self.limits = permissions, limits
        self.masker = Masker() if masker is None else masker
        self.stats = ConnectionStats() if stats is None else stats
        self.log_stderr = log_stderr
        own = MemoryKeys()
        self.keys: OpenKeys = keys or (lambda: own)

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

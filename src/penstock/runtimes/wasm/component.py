"""Describes a WebAssembly component to run: its file, permissions and limits, keys, and statistics.

Does not import wasmtime. Not here: the functions that are called (``protocols``), compiled code
(``compile_cache``). ``connectors.launch`` makes it from a ``Component``.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.sections import Limits, Permissions
from penstock.errors import Role, error_class
from penstock.runtimes.contract import Component, ConnectionStats
from penstock.runtimes.masking import Masker
from penstock.store.keys import MemoryKeys, OpenKeys

if TYPE_CHECKING:
    from penstock.runtimes.wasm.compile_cache import CompileCache


class ComponentRuntime:
    """Holds what a protocol needs to instantiate a component, any number of times. ``keys``: opens
    a port to the connector's keys, one for each connection; None: keys in memory, for the lifetime
    of this object. ``log_stderr`` receives what the connector prints, line by line, masked by
    ``masker``. ``role``: the role whose error class is raised. ``stats``: filled by the
    protocol."""

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
        """Reads the component's file. Raises the role's error (``connector.not_found``;
        ``connector.changed`` where its digest differs)."""
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
                f"the component {path} differs from the planned file",
                code="connector.changed",
                hint="run again; on a cluster every worker needs the same file",
            )
        return content

    def cache(self) -> "CompileCache":
        """Returns the cache for the component's compiled code."""
        from penstock.runtimes.wasm.compile_cache import CompileCache

        folder = self.component.cache
        return CompileCache(None if folder is None else Path(folder))


def digest_of(content: bytes) -> str:
    """Returns the SHA-256 of a component's file, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

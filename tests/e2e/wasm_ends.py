"""Pipelines with WebAssembly components at both ends, run in this process.

Compiled code is kept beside pytest's cache, so that a component is compiled once for all tests.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines import Ran
from wasm_sites import WasmSite

import built

APPEND = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append"}
UPSERT = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
REPLACE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


def share_compiled(home: Path) -> None:
    """Let this home's compiled code be everybody's."""
    home.mkdir(parents=True, exist_ok=True)
    built.COMPILED.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "compiled").symlink_to(built.COMPILED)


class Ends(WasmSite):
    """From one component into another. ``to``: the destination's content, or what its section's
    ``use`` says."""

    def __init__(self, folder: Path, *, binary: bytes, to: bytes | str) -> None:
        super().__init__(folder, "parquet", binary=binary)
        share_compiled(self.home.path)
        if isinstance(to, bytes):
            path = folder / "destination.wasm"
            path.write_bytes(to)
            self.to = str(path)
        else:
            self.to = to

    def sync(
        self,
        read: Mapping[str, Any],
        write: Mapping[str, Any],
        defaults: Mapping[str, str] = INCREMENTAL,
        *,
        destination: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> Ran:
        """``read``, ``write``: the two configurations; ``destination``: further keys of its
        section."""
        section = {"use": self.to, "config": dict(write), **(destination or {})}
        return self.run(
            config=dict(read), defaults=dict(defaults), destination=section, **parts
        )

"""Configures what a guest can reach of the system (WASI): granted variables and folders, clocks and
randomness; no arguments, no input, no network, and its stdout is dropped.

Not here: what is granted (``protocols``)."""

import os
from collections.abc import Callable
from pathlib import Path

from wasmtime import WasiConfig, WasmtimeError

from penstock.runtimes.wasm.contract import Grants, Trap, TrapKind
from penstock.runtimes.wasm.guest_output import Stderr


def wasi_of(grants: Grants, stderr: Stderr, warn: Callable[[str], None]) -> WasiConfig:
    """Makes the WASI configuration of a guest. Leaves out a granted folder that does not exist, and
    calls ``warn``. Raises :class:`Trap` (``refused``) for a folder that cannot be opened."""
    config = WasiConfig()
    config.env = [(name, value) for name, value in sorted(grants.env.items())]
    config.stderr_custom = stderr.write
    given = [(folder, True) for folder in grants.folders]
    for folder, writable in (*given, *((folder, False) for folder in grants.read_only)):
        host = os.path.join(grants.start, folder)
        if not Path(host).is_dir():
            warn(f"the folder {folder} does not exist here: the connector will not see it")
            continue
        try:
            config.preopen_dir(host, folder, writable)
        except WasmtimeError as e:
            raise Trap(
                TrapKind.refused, f"the folder {folder} cannot be opened", detail=str(e)
            ) from e
    return config

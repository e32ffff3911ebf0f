"""What a process, here or on another host, needs to run a connector: data, no handle.

All that a lane imports from ``connectors``, so light. Neighbours: ``source`` makes a
:class:`Launch`; ``install`` is imported only where an environment must be rebuilt.
"""

import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.errors import SourceError
from penstock.runtimes.confine import confinement
from penstock.runtimes.contract import Component, Runtime
from penstock.runtimes.process import ProcessRuntime
from penstock.runtimes.wasm.component import ComponentRuntime, OpenKeys


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An installed package. ``lock``: its exact pins, one a line, which with the ``python`` minor
    version give ``key``, the name of its folder. Enough to build the same one elsewhere."""

    protocol: str
    package: str
    version: str
    key: str
    lock: str
    python: str
    script: str
    folder: str


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """``env``: settings that are no secret. ``env_keys``: variables handed on from the environment
    of whoever starts it. ``environment`` None: a local command. ``permissions``, ``limits``: what
    the user says that it may reach and use. ``component``: it is a WebAssembly component, and
    ``command`` is empty."""

    protocol: str
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    env_keys: tuple[str, ...] = ()
    environment: Environment | None = None
    permissions: Permissions | None = None
    limits: Limits | None = None
    component: Component | None = None


def runtime_for(
    launch: Launch,
    secrets: Sequence[str] = (),
    log_stderr: Callable[[str], None] | None = None,
    keys: OpenKeys | None = None,
) -> Runtime:
    """A runtime for it, its environment rebuilt first on a host that lacks it. ``keys``: see
    ``ComponentRuntime``. Raises ``ConfigError`` for what this machine cannot hold it to,
    ``SourceError``."""
    if launch.component is not None:
        return ComponentRuntime(
            launch.component,
            permissions=launch.permissions,
            limits=launch.limits,
            secrets=secrets,
            log_stderr=log_stderr,
            keys=keys,
        )
    held = confinement(launch.permissions, launch.limits)
    command = launch.command
    if launch.environment is not None and not os.path.exists(command[0]):
        command = (_rebuilt(launch.environment), *command[1:])
    # An environment can be had on a host that has not the folder it was started in.
    cwd = launch.cwd
    if launch.environment is not None and cwd is not None and not os.path.isdir(cwd):
        cwd = None
    allowed = launch.env_keys if held.env_keys is None else held.env_keys
    env = {k: os.environ[k] for k in launch.env_keys if k in allowed and k in os.environ}
    return ProcessRuntime(
        command,
        env={**launch.env, **env},
        secrets=secrets,
        log_stderr=log_stderr,
        cwd=cwd,
        confinement=held,
    )


def _rebuilt(environment: Environment) -> str:
    from penstock.connectors.install import rebuild

    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        return rebuild(environment)
    except SourceError as e:
        if environment.python != here:
            e.hint = f"install Python {environment.python} on every worker; {e.hint or ''}"
        raise

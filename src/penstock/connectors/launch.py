"""What a process, here or on another host, needs to run a connector: data, no handle.

All that a lane imports from ``connectors``, so light. Neighbours: ``source`` makes a
:class:`Launch`; ``install`` is imported only where an environment must be rebuilt.
"""

import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.connectors.environments import Environment
from penstock.errors import PenstockError, Role
from penstock.runtimes.contract import Component, Runtime
from penstock.runtimes.env import granted, secrets_of
from penstock.runtimes.limits import confinement
from penstock.runtimes.process import ProcessRuntime
from penstock.runtimes.wasm.component import ComponentRuntime, OpenKeys


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """``env``: settings that are no secret. ``env_keys``: variables handed on from the environment
    of whoever starts it. ``environment`` None: a local command. ``permissions``, ``limits``: what
    the user says that it may reach and use. ``builds``: a host that lacks the environment may build
    packages of it from source. ``component``: it is a WebAssembly component, and ``command`` is
    empty. ``role``: whose failures those of starting it are."""

    protocol: str
    role: Role = "source"
    command: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    env_keys: tuple[str, ...] = ()
    environment: Environment | None = None
    permissions: Permissions | None = None
    limits: Limits | None = None
    builds: bool = True
    component: Component | None = None


def runtime_for(
    launch: Launch,
    secrets: Sequence[str] = (),
    log_stderr: Callable[[str], None] | None = None,
    keys: OpenKeys | None = None,
) -> Runtime:
    """A runtime for it, its environment rebuilt first on a host that lacks it. ``keys``: see
    ``ComponentRuntime``. Raises ``ConfigError`` for what this machine cannot hold it to,
    its role's error."""
    if launch.component is not None:
        return ComponentRuntime(
            launch.component,
            permissions=launch.permissions,
            limits=launch.limits,
            secrets=secrets,
            log_stderr=log_stderr,
            keys=keys,
            role=launch.role,
        )
    held = confinement(launch.permissions, launch.limits)
    command = launch.command
    if launch.environment is not None and not os.path.exists(command[0]):
        rebuilt = os.path.dirname(_rebuilt(launch.environment, launch))
        command = (os.path.join(rebuilt, os.path.basename(command[0])), *command[1:])
    # An environment can be had on a host that has not the folder it was started in.
    cwd = launch.cwd
    if launch.environment is not None and cwd is not None and not os.path.isdir(cwd):
        cwd = None
    allowed = launch.env_keys if held.env_keys is None else held.env_keys
    return ProcessRuntime(
        command,
        env={**launch.env, **granted(k for k in launch.env_keys if k in allowed)},
        secrets=(*secrets, *given_secrets(launch)),
        log_stderr=log_stderr,
        cwd=cwd,
        confinement=held,
        role=launch.role,
    )


def given_secrets(launch: Launch) -> list[str]:
    """The values, here, of the variables that a process is given by name: secret wherever they
    stand. A component's are known to whoever reads its manifest."""
    if launch.component is not None:
        return []
    asked = launch.permissions.configured() if launch.permissions else {}
    return secrets_of((*launch.env_keys, *asked.get("env.allowed_vars", ())))


def _rebuilt(environment: Environment, launch: Launch) -> str:
    from penstock.connectors.install import rebuild

    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        return rebuild(
            environment,
            launch.permissions,
            launch.limits,
            builds=launch.builds,
            role=launch.role,
        )
    except PenstockError as e:
        if e.code == "connector.build_refused":
            e.hint = (
                "this host lacks the environment that was built elsewhere: let it use the same"
                " home (PENSTOCK_HOME on storage that they share), or `penstock add` it there"
            )
        if environment.python != here:
            e.hint = f"install Python {environment.python} on every worker; {e.hint or ''}"
        raise

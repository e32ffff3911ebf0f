"""Describes how to run a connector, on this host or another, as data; and connects to it.

Imports little, as it is the only module that a lane imports from ``connectors``. Neighbours:
``resolve`` makes a :class:`Launch`; ``install`` is imported only where an environment must be
rebuilt; ``protocols.connection`` defines :class:`Connection`.
"""

import os
import sys
from collections.abc import Callable

import msgspec

from penstock.connectors.environments import Environment
from penstock.errors import PenstockError, in_role
from penstock.protocols import load
from penstock.protocols.connection import Connection
from penstock.runtimes.contract import ConnectionStats, Start
from penstock.runtimes.masking import Masker
from penstock.store.keys import OpenKeys


class Launch(Start, frozen=True, kw_only=True):
    """What another process needs to run a connector. ``environment`` None: a local command.
    ``builds``: a host that lacks the environment may build packages of it from source."""

    protocol: str
    environment: Environment | None = None
    builds: bool = True


def connect(
    launch: Launch,
    secrets: Masker,
    stats: ConnectionStats,
    *,
    stderr: Callable[[str], None] | None = None,
    keys: OpenKeys | None = None,
) -> Connection:
    """Calls ``ProtocolPackage.connect``, and rebuilds the environment first on a host that lacks
    it. Raises the errors of that call, and the role's error."""
    with secrets.errors():
        here = ready(launch)
        return load(launch.protocol).connect(here, secrets, stats, stderr=stderr, keys=keys)


def ready(launch: Launch) -> Launch:
    """Returns the launch for this host: with the command of its environment, which is rebuilt if it
    is missing, and without a working folder that this host does not have."""
    if launch.environment is None:
        return launch
    command, cwd = launch.command, launch.cwd
    if launch.environment.manager == "npm":
        command = _of_npm(launch, launch.environment)
    elif not os.path.exists(command[0]):
        rebuilt = os.path.dirname(_rebuilt(launch.environment, launch))
        command = (os.path.join(rebuilt, os.path.basename(command[0])), *command[1:])
    if cwd is not None and not os.path.isdir(cwd):
        cwd = None
    return msgspec.structs.replace(launch, command=command, cwd=cwd)


def _of_npm(launch: Launch, environment: Environment) -> tuple[str, ...]:
    from penstock.connectors.npm import find_node

    _, script, *rest = launch.command
    if not os.path.exists(script):
        script = _rebuilt(environment, launch)
    with in_role(launch.role):
        return (find_node(), script, *rest)


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
        if environment.python not in ("", here):
            e.hint = f"install Python {environment.python} on every worker; {e.hint or ''}"
        raise

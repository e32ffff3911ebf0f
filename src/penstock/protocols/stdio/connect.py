"""Connects to a connector that speaks by lines, a process or a container: runs it, measured.

Not here: what is said (``read``, ``write``, ``protocols/*``) and who may hear it
(``protocols.connection.Connection``).
"""

from collections.abc import Callable, Mapping

import msgspec

from penstock.protocols.connection import Connection, Conversations
from penstock.runtimes.contract import ConnectionStats, Runtime, Start
from penstock.runtimes.masking import Masker
from penstock.runtimes.metered import MeteredRuntime
from penstock.runtimes.process import ProcessRuntime


def connect_lines(
    protocol: Conversations[Runtime],
    launch: Start,
    secrets: Masker,
    stats: ConnectionStats,
    stderr: Callable[[str], None] | None,
) -> Connection:
    """``ProtocolPackage.connect`` of a protocol of lines."""
    runtime = runtime_of(launch, secrets, stats, stderr)
    return Connection(protocol, launch.role, runtime, secrets)


def runtime_of(
    launch: Start,
    secrets: Masker,
    stats: ConnectionStats,
    stderr: Callable[[str], None] | None,
    variables: Mapping[str, str] | None = None,
    served: int | None = None,
) -> Runtime:
    """Returns the measured runtime of what ``launch`` names: a container where it is an image, else
    a process. ``variables``: more that it is given, secrets of Penstock's own, which a container
    can be given only where its image has a shell. ``served``: the port of a server on this
    process's loopback, for a container without a network."""
    more = variables or {}
    if launch.image is None:
        launch = msgspec.structs.replace(launch, env={**launch.env, **more})
        return MeteredRuntime(ProcessRuntime.of(launch, secrets, stderr), stats)
    from penstock.runtimes.container.runtime import ContainerRuntime

    runtime = ContainerRuntime.of(
        launch, launch.image, secrets, stderr, variables=more, served=served
    )
    return MeteredRuntime(runtime, stats)

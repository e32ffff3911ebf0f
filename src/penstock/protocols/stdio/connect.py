"""Connects to a connector that exchanges lines, a process or a container: runs it, with
measurement.

Not here: the messages (``read``, ``write``, ``protocols/*``) and masking
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
    """Implements ``ProtocolPackage.connect`` for a protocol of lines."""
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
    """Returns the measured runtime for ``launch``: a container where it is an image, else a
    process. ``variables``: further environment, secrets of Penstock's own, which a container can
    get only where its image has a shell. ``served``: the port of a server on this process's
    loopback, for a container without a network."""
    more = variables or {}
    if launch.image is None:
        launch = msgspec.structs.replace(launch, env={**launch.env, **more})
        return MeteredRuntime(ProcessRuntime.of(launch, secrets, stderr), stats)
    from penstock.runtimes.container.runtime import ContainerRuntime

    runtime = ContainerRuntime.of(
        launch, launch.image, secrets, stderr, variables=more, served=served
    )
    return MeteredRuntime(runtime, stats)

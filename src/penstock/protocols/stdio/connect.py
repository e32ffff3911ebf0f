"""Connects to a connector that speaks by lines, a process or a container: runs it, measured.

Not here: what is said (``read``, ``write``, ``protocols/*``) and who may hear it
(``protocols.contract.Connection``).
"""

from collections.abc import Callable

from penstock.protocols.contract import Connection, Conversations
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
    runtime = _runtime(launch, secrets, stderr)
    return Connection(protocol, launch.role, MeteredRuntime(runtime, stats), secrets)


def _runtime(launch: Start, secrets: Masker, stderr: Callable[[str], None] | None) -> Runtime:
    if launch.image is None:
        return ProcessRuntime.of(launch, secrets, stderr)
    from penstock.runtimes.container.runtime import ContainerRuntime

    return ContainerRuntime.of(launch, launch.image, secrets, stderr)

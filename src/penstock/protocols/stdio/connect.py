"""Connects to a connector that is a process and speaks by lines: runs it, measured.

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
    process = ProcessRuntime.of(launch, secrets, stderr)
    return Connection(protocol, launch.role, MeteredRuntime(process, stats), secrets)

"""Checks which permissions and limits can be enforced on a connector that runs as a process.

Refuses what cannot be enforced before anything starts (L10). Knows no protocol. Not here: the
enforcement (``linux_sandbox``, in the connector's parent; ``env``), the time limit
(``Timeouts.total``), WebAssembly components (``runtimes.wasm``), which request permissions of their
own.
"""

import functools
import subprocess
import sys
from pathlib import Path

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.errors import ConfigError, PenstockError, Role, error_class

ENCLOSURE = str(Path(__file__).with_name("linux_sandbox.py"))
"""The script that tests for namespaces and confines programs."""
_PROBE_SECONDS = 60.0
_INSTEAD = "use a container image (PROTOCOL:docker:IMAGE) or a WebAssembly connector"


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """The restrictions to enforce on a process. ``no_network``: it has no network except its own
    loopback. ``max_memory``: bytes for the whole process tree. ``env_keys``: the only variables of
    this process that it gets besides ``env.BASE``; None: those of ``env.clean_environment``."""

    no_network: bool = False
    max_memory: int | None = None
    env_keys: tuple[str, ...] | None = None


def confinement(permissions: Permissions | None, limits: Limits | None) -> Confinement:
    """Converts permissions and limits to the confinement of a process. Raises ``ConfigError``
    (``config.unsupported``) that lists all that cannot be enforced on this machine."""
    problems = unenforceable(permissions, limits)
    if problems:
        raise ConfigError(
            "a process of this machine cannot be limited to the connector's permissions",
            code="config.unsupported",
            problems=problems,
            hint=f"what cannot be enforced is refused, never ignored: {_INSTEAD}",
        )
    asked = permissions.configured() if permissions else {}
    return Confinement(
        no_network="network.allowed_hosts" in asked,
        max_memory=limits.max_memory if limits else None,
        env_keys=asked.get("env.allowed_vars"),
    )


def unenforceable(permissions: Permissions | None, limits: Limits | None) -> list[str]:
    """Lists the permissions and limits that cannot be enforced on a process of this machine, each
    as a sentence that begins with its key. Starts no connector."""
    asked = permissions.configured() if permissions else {}
    reasons: dict[str, str] = {}
    if (hosts := asked.get("network.allowed_hosts")) is not None:
        why = no_namespace() if not hosts else None
        if hosts:
            reasons["permissions.network.allowed_hosts"] = (
                "it can be cut off from the whole network ([]), not limited to some hosts"
            )
        elif why is not None:
            reasons["permissions.network.allowed_hosts"] = (
                f"this machine gives it no network namespace ({why})"
            )
    network = permissions.network if permissions else None
    if network is not None and network.allow_private is False:
        reasons["permissions.network.allow_private"] = "the addresses it connects to are not seen"
    if "fs.allowed_preopens" in asked:
        reasons["permissions.fs.allowed_preopens"] = "it can open what its user can open"
    if limits and limits.max_memory is not None and not sys.platform.startswith("linux"):
        reasons["limits.max_memory"] = "memory is watched on Linux only"
    if limits and limits.max_keys is not None:
        reasons["limits.max_keys"] = "only WebAssembly components have such a limit"
    return [
        f"{key} cannot be enforced on a connector that runs as a process: {why}; {_INSTEAD}"
        for key, why in reasons.items()
    ]


@functools.cache
def no_namespace() -> str | None:
    """Returns the reason why processes on this machine get no network namespace of their own; None
    where they do. Probed once in a process."""
    if not sys.platform.startswith("linux"):
        return "it is not Linux"
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", ENCLOSURE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as e:
        return str(e)
    return tried.stdout.strip() or (f"exit code {tried.returncode}" if tried.returncode else None)


def too_much(limit: int, used: int, role: Role) -> PenstockError:
    """Makes the error of a role (``source.memory``) for a process tree that was killed for its
    memory. ``limit``, ``used``: bytes."""
    return error_class(role)(
        f"the connector used {_mebibytes(used)} of memory and was killed: its limit is "
        f"{_mebibytes(limit)} (limits.max_memory)",
        code=f"{role}.memory",
        hint="raise limits.max_memory, or give it less to do at a time (fewer streams, smaller"
        " batches)",
    )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MB"

"""Translates a connector's permissions and limits into the restrictions of its container.

Refuses what cannot be enforced before anything starts (L10). Not here: the same for a process
(``runtimes.limits``); the time limit (``Timeouts.total``).
"""

import os

import msgspec

from penstock.config.sections import ContainerSettings, Limits, Permissions
from penstock.errors import ConfigError
from penstock.model.hosts import ReachableHosts, parsed
from penstock.runtimes.container.egress import places
from penstock.runtimes.container.engine import Engine


class ContainerRestrictions(msgspec.Struct, frozen=True, kw_only=True):
    """``no_network``: only its own loopback. ``reach``: the hosts that it may reach from there
    (``egress``); None: there is no list. ``max_memory``: bytes of the whole container.
    ``container``: the user's other settings for it. ``folders``: (path, read-only) each, mounted at
    the same place. ``env_keys``: the only variables of ours that it gets; None: the default
    ones."""

    no_network: bool = False
    reach: ReachableHosts | None = None
    max_memory: int | None = None
    container: ContainerSettings = ContainerSettings()
    folders: tuple[tuple[str, bool], ...] = ()
    env_keys: tuple[str, ...] | None = None

    def options(self) -> list[str]:
        """Returns the options of ``create``."""
        words = [f"--pids-limit={self.container.max_processes}"]
        words += [f"--cap-add={name}" for name in self.container.capabilities]
        if self.container.read_only:
            words += ["--read-only", "--tmpfs=/tmp:rw,mode=1777"]
        if self.no_network or self.reach:
            words.append("--network=none")
            at = {
                host: address
                for (host, _), address in places(self.reach or ReachableHosts()).items()
            }
            words += [f"--add-host={host}:{address}" for host, address in at.items()]
        elif self.container.network is not None:
            words.append(f"--network={self.container.network}")
        if self.max_memory is not None:
            words += [f"--memory={self.max_memory}", f"--memory-swap={self.max_memory}"]
        for path, read_only in self.folders:
            end = ",readonly" if read_only else ""
            words += ["--mount", f"type=bind,src={path},dst={path}{end}"]
        return words


def restrictions_of(
    permissions: Permissions | None,
    limits: Limits | None,
    container: ContainerSettings,
    engine: Engine,
) -> ContainerRestrictions:
    """Returns a container's restrictions. Raises ``ConfigError`` (``config.unsupported``) with all
    that cannot be enforced here."""
    problems = unenforceable(permissions, limits, container)
    if limits and limits.max_memory is not None and not engine.limits_memory:
        problems.append(
            "limits.max_memory cannot be enforced on a container: this machine's kernel does not "
            f"let {engine.kind} bound memory"
        )
    if not engine.limits_processes:
        problems.append(
            "the number of a container's processes cannot be bounded: this machine's kernel does "
            f"not let {engine.kind} do so"
        )
    reach = _reach(permissions)
    if reach is not None and not enters_networks(engine):
        problems.append(
            "permissions.network.allowed_hosts: hosts cannot be allowed to a container here, which "
            "needs root and an engine that root runs on this machine's own kernel: use [], or a "
            "WebAssembly connector"
        )
    if problems:
        raise ConfigError(
            "a container of this machine cannot be limited to the connector's permissions",
            code="config.unsupported",
            problems=problems,
            hint="what cannot be enforced is refused, never ignored: remove it from the file",
        )
    asked = permissions.configured() if permissions else {}
    return ContainerRestrictions(
        no_network="network.allowed_hosts" in asked and reach is None,
        reach=reach,
        max_memory=limits.max_memory if limits else None,
        container=container,
        folders=tuple(_folder(f) for f in asked.get("fs.allowed_preopens", ())),
        env_keys=asked.get("env.allowed_vars"),
    )


def enters_networks(engine: Engine) -> bool:
    """Returns whether this process can listen in the network of a container that has none
    (``egress``)."""
    return os.geteuid() == 0 and not engine.own_user_is_root and engine.shares_pipes


def unenforceable(
    permissions: Permissions | None, limits: Limits | None, container: ContainerSettings
) -> list[str]:
    """Returns why no container can enforce them, each a sentence that begins with the key; calls no
    engine."""
    asked = permissions.configured() if permissions else {}
    reasons: dict[str, str] = {}
    if "network.allowed_hosts" in asked and container.network is not None:
        reasons["permissions.network.allowed_hosts"] = (
            f"container.network puts it on the network {container.network}; remove one of the two"
        )
    network = permissions.network if permissions else None
    if network is not None and network.allow_private is False and not network.allowed_hosts:
        reasons["permissions.network.allow_private"] = (
            "what it connects to is seen only where network.allowed_hosts lists hosts"
        )
    for folder in asked.get("fs.allowed_preopens", ()):
        path, _ = _folder(folder)
        if not os.path.isabs(path) or "," in path:
            reasons["permissions.fs.allowed_preopens"] = (
                f"{path} is not the full path of a folder, without commas"
            )
    if limits and limits.max_keys is not None:
        reasons["limits.max_keys"] = "it is for components only"
    return [
        f"{key} cannot be enforced on a connector that runs as a container: {why}"
        for key, why in reasons.items()
    ]


def _reach(permissions: Permissions | None) -> ReachableHosts | None:
    """Returns the hosts of a list; None: there is no list, or it is empty. Listed hosts, in full or
    by their domain, may lie in a private network, like those of a component."""
    network = permissions.network if permissions else None
    if network is None or not network.allowed_hosts:
        return None
    hosts = network.allowed_hosts
    named = tuple(str(p) for p in parsed(hosts) if p.names_hosts)
    return ReachableHosts(hosts=hosts, named=named, private=bool(network.allow_private))


def _folder(text: str) -> tuple[str, bool]:
    path = text.removesuffix(":ro")
    return path, path != text

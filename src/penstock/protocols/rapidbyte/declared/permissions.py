"""Computes a component's effective permissions and limits: its manifest, narrowed by the pipeline.

Pure functions; the merge table of the protocol ("Pipeline-Level Permissions & Limits"), row by row.
A capability is granted only where both the manifest and the pipeline allow it; the pipeline never
widens; an absent field leaves the manifest's; ``[]`` blocks all. Without a manifest nothing is
granted. Neighbours: ``manifest`` (the component's requests), ``host_patterns`` (hosts),
``config.sections`` (the pipeline's keys). Not here: enforcement (``runtimes.wasm``: folders,
variables, memory, time; ``rapidbyte.guest.sockets``: hosts).
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.errors import ConfigError
from penstock.model.hosts import ANY, ReachableHosts
from penstock.model.variables import withheld
from penstock.protocols.contract import EffectiveLimit
from penstock.protocols.rapidbyte.declared import host_patterns
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest, ManifestResult
from penstock.runtimes.env import granted
from penstock.runtimes.wasm.contract import Grants

_READ_ONLY = ":ro"
_KERNEL = ("/proc", "/sys", "/dev")
DEFAULT_SECONDS = 300
"""``timeout_seconds`` if neither manifest nor pipeline sets it. ``max_memory`` is unlimited
then."""


class Folder(NamedTuple):
    path: str
    read_only: bool


def folder_of(text: str) -> Folder:
    """Parses a folder of a manifest or a pipeline: ``PATH``, or ``PATH:ro`` for read only."""
    path = text.removesuffix(_READ_ONLY)
    return Folder(path, path != text)


class EffectivePermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions and limits under which a component runs. ``hosts``, ``named``, ``private``:
    as in ``ReachableHosts``; ``max_memory``: bytes, None: unlimited. ``rulings``: each value with
    the rule that decided it, which ``plan`` shows. ``start``: where relative ``folders`` start;
    empty: the folder of the process."""

    hosts: tuple[str, ...]
    named: tuple[str, ...] = ()
    private: bool = False
    variables: tuple[str, ...]
    folders: tuple[str, ...]
    max_memory: int | None
    timeout_seconds: int
    rulings: tuple[EffectiveLimit, ...]
    start: str = ""

    @property
    def reach(self) -> ReachableHosts:
        return ReachableHosts(hosts=self.hosts, named=self.named, private=self.private)


def effective(
    found: ManifestResult,
    permissions: Permissions | None,
    limits: Limits | None,
    config: dict[str, Any],
    most: int | None = None,
    start: str = "",
) -> EffectivePermissions:
    """Merges a manifest with the pipeline. ``config``: names hosts, which the manifest may allow.
    ``most``: the pipeline's ``resources.max_memory``, a bound for each of its components.
    ``start``: as of the result. Raises ``ConfigError`` (``config.unsupported``) for folders that
    cannot be held to ``:ro``."""
    rulings = _merged(found, permissions, limits, config, most)
    values = [line.value for line in rulings]
    if problems := _writable_all_the_same(values[2]):
        raise ConfigError(
            "the component's read-only folders cannot be enforced",
            code="config.unsupported",
            problems=problems,
            hint="list the other folders, and not one that contains the read-only one",
        )
    private, rule = _private(values[0], found, permissions, config)
    if private:
        rulings.insert(1, EffectiveLimit("network.private_hosts", private, rule))
    return EffectivePermissions(
        hosts=values[0],
        named=() if private == (ANY,) else private,
        private=private == (ANY,),
        variables=values[1],
        folders=values[2],
        max_memory=values[3],
        timeout_seconds=values[4],
        rulings=tuple(rulings),
        start=start,
    )


def _merged(
    found: ManifestResult,
    permissions: Permissions | None,
    limits: Limits | None,
    config: dict[str, Any],
    most: int | None,
) -> list[EffectiveLimit]:
    """Returns the rows of the merge table, in order: hosts, variables, folders, memory, seconds."""
    asked = (permissions or Permissions()).configured()
    manifest = found.manifest
    declared = manifest.permissions if manifest is not None else None
    source = _source(found)
    hosts = _hosts(manifest, config)
    narrowed_hosts = asked.get("network.allowed_hosts")
    return [
        EffectiveLimit(
            "network.allowed_hosts", *_narrowed(hosts, narrowed_hosts, source, _hosts_both)
        ),
        EffectiveLimit(
            "env.allowed_vars",
            *_narrowed(
                _given(declared.env.allowed_vars) if declared else (),
                asked.get("env.allowed_vars"), source, _both,
            ),
        ),
        EffectiveLimit(
            "fs.allowed_preopens",
            *_narrowed(
                declared.fs.preopens if declared else (),
                asked.get("fs.allowed_preopens"), source, _both_folders,
            ),
        ),
        EffectiveLimit(
            "limits.max_memory",
            *_at_most(
                _least(
                    manifest.max_memory if manifest else None,
                    limits.max_memory if limits else None,
                    None, source,
                ),
                most,
            ),
        ),
        EffectiveLimit(
            "limits.timeout_seconds",
            *_least(
                manifest.timeout_seconds if manifest else None,
                limits.timeout_seconds if limits else None,
                DEFAULT_SECONDS, source,
            ),
        ),
    ]  # fmt: skip


def declared_by_manifest(found: ManifestResult) -> list[EffectiveLimit]:
    """Returns the permissions and limits in the component's own manifest; empty without one."""
    if found.manifest is None or found.assumed:
        return []
    declared, limits = found.manifest.permissions, found.manifest.limits
    asked: dict[str, Any] = {
        "network.allowed_domains": declared.network.allowed_domains or (),
        "network.allow_runtime_config_domains": declared.network.allow_runtime_config_domains,
        "env.allowed_vars": declared.env.allowed_vars,
        "fs.preopens": declared.fs.preopens,
        "limits.max_memory": limits.max_memory,
        "limits.timeout_seconds": limits.timeout_seconds,
    }
    return [EffectiveLimit(name, value, "manifest") for name, value in asked.items() if value]


def wide_permissions(found: ManifestResult, permissions: Permissions | None) -> list[str]:
    """Describes the wide permissions that the manifest requests and the pipeline does not narrow: a
    user must consent to each. Empty for an ``assume_manifest``, which the user wrote."""
    if found.manifest is None or found.assumed:
        return []
    asked = (permissions or Permissions()).configured()
    declared = found.manifest.permissions
    wanted: list[str] = []
    if "network.allowed_hosts" not in asked:
        hosts = host_patterns.union(declared.network.allowed_domains or ())
        local = filter(host_patterns.is_local, hosts)
        wanted += [f"every host on the network ({h})" for h in hosts if host_patterns.is_any(h)]
        wanted += [f"an address inside, or this machine ({h})" for h in local]
    if "fs.allowed_preopens" not in asked:
        wanted += [
            f"{risk} ({_on_one_line(folder)})"
            for folder in declared.fs.preopens
            if (risk := _holds_much(folder_of(folder).path))
        ]
    if "env.allowed_vars" not in asked and ANY in declared.env.allowed_vars:
        wanted.append(f"every variable ({ANY})")
    return wanted


def _on_one_line(text: str) -> str:
    """Escapes a manifest's text for a question on a terminal: it can neither move the cursor nor
    begin a line."""
    return text if text.isprintable() else ascii(text)


def _holds_much(path: str) -> str | None:
    """Describes a folder whose grant exposes far more than a connector needs; None for any
    other."""
    if not os.path.isabs(path):
        return "a folder that differs wherever it runs"
    real = _real(path)
    if real == os.sep:
        return "the root folder, and with it every file"
    if any(real == top or real.startswith(top + os.sep) for top in _KERNEL):
        return "files of the kernel, and with them every process of yours"
    home = os.path.realpath(os.path.expanduser("~"))
    if f"{home}{os.sep}".startswith(f"{real}{os.sep}"):
        return "your home folder, or one around it"
    return None


def _real(path: str) -> str:
    """Returns the folder that a path means here, without links."""
    return os.sep + os.path.realpath(path).lstrip(os.sep)  # POSIX keeps two slashes in front


def _writable_all_the_same(texts: Iterable[str]) -> list[str]:
    """Describes the read-only folders that lie in a writable one: a guest can write to them by a
    path that begins at the writable one."""
    folders = [(folder, _real(folder.path)) for folder in map(folder_of, texts)]
    return [
        f"{inner.path} may only be read, and lies in {outer.path}, which may be written"
        for inner, real in folders
        for outer, around in folders
        if inner.read_only and not outer.read_only and os.path.commonpath([real, around]) == around
    ]


def grants(allowed: EffectivePermissions, environ: Mapping[str, str] | None = None) -> Grants:
    """Returns the grants for the runtime: the allowed variables that are set, the allowed
    folders."""
    folders = list(map(folder_of, allowed.folders))
    return Grants(
        env=granted(allowed.variables, environ),
        folders=tuple(f.path for f in folders if not f.read_only),
        read_only=tuple(f.path for f in folders if f.read_only),
        start=allowed.start,
    )


def _source(found: ManifestResult) -> str:
    if found.manifest is None:
        return f"no manifest grants it ({found.problem or 'it has none'})"
    return "assume_manifest" if found.assumed else "manifest"


def _hosts(manifest: ComponentManifest | None, config: dict[str, Any]) -> tuple[str, ...]:
    if manifest is None:
        return ()
    declared = manifest.permissions.network
    named = host_patterns.hosts_in(config) if declared.allow_runtime_config_domains else ()
    return host_patterns.union(declared.allowed_domains or (), named)


def _private(
    hosts: tuple[str, ...],
    found: ManifestResult,
    permissions: Permissions | None,
    config: dict[str, Any],
) -> tuple[tuple[str, ...], str]:
    """Returns the allowed hosts that may lie in a private network, and the rule: those that the
    user names, or consented to (:func:`wide_permissions`)."""
    network = permissions.network if permissions else None
    if network is not None and network.allow_private and hosts:
        return (ANY,), "the pipeline's allow_private"
    manifest = found.manifest if found.assumed else None
    named = host_patterns.union(
        host_patterns.naming((network.allowed_hosts if network else None) or ()),
        host_patterns.naming(
            (manifest.permissions.network.allowed_domains if manifest else None) or ()
        ),
        filter(host_patterns.is_local, hosts)
        if network is None or network.allowed_hosts is None
        else (),
        host_patterns.named_in(config),
    )
    return host_patterns.intersection(hosts, named), "named in the pipeline, or agreed to"


def _hosts_both(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    return host_patterns.intersection(ours, theirs)


def _given(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not withheld(name))


def _both(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in both lists, by exact spelling, as v4 compares them."""
    return tuple(sorted(set(ours) & set(theirs)))


def _both_folders(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """Returns the folders in both lists, by the spelling of their paths; read-only if either is."""
    left, right = list(map(folder_of, ours)), list(map(folder_of, theirs))
    folders = {
        Folder(a.path, a.read_only or b.read_only) for a in left for b in right if a.path == b.path
    }
    writable = {f.path for f in folders if not f.read_only}
    return tuple(
        sorted(f.path + _READ_ONLY * f.read_only for f in folders
               if not (f.read_only and f.path in writable))
    )  # fmt: skip


def _narrowed(
    declared: tuple[str, ...], asked: tuple[str, ...] | None, source: str, both: Any
) -> tuple[tuple[str, ...], str]:
    if asked is None:
        return tuple(sorted(set(declared))), f"{source}; the pipeline sets nothing"
    if not asked:
        return (), "the pipeline blocks all"
    return both(declared, asked), f"{source} and pipeline"


def _at_most(limit: tuple[int | None, str], most: int | None) -> tuple[int | None, str]:
    if most is None or (limit[0] is not None and limit[0] <= most):
        return limit
    return most, "resources.max_memory"


def _least(
    declared: int | None, asked: int | None, default: int | None, source: str
) -> tuple[int | None, str]:
    values = [value for value in (declared, asked) if value is not None]
    if not values:
        return default, "default"
    if declared is None or (asked is not None and asked < declared):
        return min(values), "pipeline"
    return min(values), source

"""What a connector may reach and use in the end: what it asks for, narrowed by the pipeline.

Pure functions; the merge table of the protocol ("Pipeline-Level Permissions & Limits"), row by row.
A capability is granted only where both the manifest and the pipeline allow it; the pipeline never
widens; an absent field leaves the manifest's; ``[]`` blocks all. Without a manifest nothing is
granted. Neighbours: ``manifest`` (what it asks for), ``network`` (hosts), ``config.sections`` (what
the pipeline says); ``runtimes.wasm`` enforces folders, variables, memory and time, ``sockets`` the
hosts.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.config.sections import Limits, Permissions
from penstock.protocols.contract import Held
from penstock.protocols.rapidbyte import network
from penstock.protocols.rapidbyte.manifest import Found, Manifest
from penstock.runtimes.wasm.contract import Grants

DEFAULT_SECONDS = 300
"""``timeout_seconds`` where neither says one; memory is then unlimited."""


class Effective(msgspec.Struct, frozen=True, kw_only=True):
    """``hosts``: patterns of ``network``; ``max_memory``: bytes, None: unlimited. ``ruled``: each
    of them with the rule that made it."""

    hosts: tuple[str, ...]
    variables: tuple[str, ...]
    folders: tuple[str, ...]
    max_memory: int | None
    timeout_seconds: int
    ruled: tuple[Held, ...]


def effective(
    found: Found,
    permissions: Permissions | None,
    limits: Limits | None,
    config: dict[str, Any],
) -> Effective:
    """``config``: where the manifest allows the hosts that it names."""
    asked = (permissions or Permissions()).asked()
    manifest = found.manifest
    declared = manifest.permissions if manifest is not None else None
    source = _source(found)
    hosts = _hosts(manifest, config)
    narrowed_hosts = asked.get("network.allowed_hosts")
    ruled = [
        Held("network.allowed_hosts", *_narrowed(hosts, narrowed_hosts, source, _hosts_both)),
        Held(
            "env.allowed_vars",
            *_narrowed(
                declared.env.allowed_vars if declared else (),
                asked.get("env.allowed_vars"), source, _both,
            ),
        ),
        Held(
            "fs.allowed_preopens",
            *_narrowed(
                declared.fs.preopens if declared else (),
                asked.get("fs.allowed_preopens"), source, _both,
            ),
        ),
        Held(
            "limits.max_memory",
            *_least(
                manifest.max_memory if manifest else None,
                limits.max_memory if limits else None,
                None, source,
            ),
        ),
        Held(
            "limits.timeout_seconds",
            *_least(
                manifest.timeout_seconds if manifest else None,
                limits.timeout_seconds if limits else None,
                DEFAULT_SECONDS, source,
            ),
        ),
    ]  # fmt: skip
    values = [line.value for line in ruled]
    return Effective(
        hosts=values[0],
        variables=values[1],
        folders=values[2],
        max_memory=values[3],
        timeout_seconds=values[4],
        ruled=tuple(ruled),
    )


def grants(allowed: Effective, environ: Mapping[str, str] | None = None) -> Grants:
    """What the runtime gives: the allowed variables that are set, the allowed folders."""
    known = os.environ if environ is None else environ
    return Grants(
        env={name: known[name] for name in allowed.variables if name in known},
        folders=allowed.folders,
    )


def _source(found: Found) -> str:
    if found.manifest is None:
        return f"no manifest grants it ({found.problem or 'it has none'})"
    return "assume_manifest" if found.assumed else "manifest"


def _hosts(manifest: Manifest | None, config: dict[str, Any]) -> tuple[str, ...]:
    if manifest is None:
        return ()
    declared = manifest.permissions.network
    named = network.hosts_in(config) if declared.allow_runtime_config_domains else ()
    return network.union(declared.allowed_domains or (), named)


def _hosts_both(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    return network.intersection(ours, theirs)


def _both(ours: Iterable[str], theirs: Iterable[str]) -> tuple[str, ...]:
    """Exact spellings, as v4 compares them."""
    return tuple(sorted(set(ours) & set(theirs)))


def _narrowed(
    declared: tuple[str, ...], asked: tuple[str, ...] | None, source: str, both: Any
) -> tuple[tuple[str, ...], str]:
    if asked is None:
        return tuple(sorted(set(declared))), f"{source}; the pipeline says nothing"
    if not asked:
        return (), "the pipeline blocks all"
    return both(declared, asked), f"{source} and pipeline"


def _least(
    declared: int | None, asked: int | None, default: int | None, source: str
) -> tuple[int | None, str]:
    given = [value for value in (declared, asked) if value is not None]
    if not given:
        return default, "default"
    if declared is None or (asked is not None and asked < declared):
        return min(given), "pipeline"
    return min(given), source

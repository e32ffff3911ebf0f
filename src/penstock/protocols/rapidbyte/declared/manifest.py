"""Reads a component's manifest and configuration schema out of custom sections of its binary.

Sections ``rapidbyte_manifest_v1`` and ``rapidbyte_config_schema_v1``, at the top or in a nested
module; the last one counts. A manifest that cannot be read counts as missing: its problem is
reported and nothing is granted, while the schema is still used. Not here: the final grants
(``permissions``). Source: the protocol, sections 8 and 9.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from penstock.config.scalars import parse_size
from penstock.errors import ConfigError, Role
from penstock.model.catalog import ConnectorSpec
from penstock.model.events import LogEvent
from penstock.model.variables import withheld
from penstock.protocols.connection import EventSink
from penstock.protocols.rapidbyte.declared.host_patterns import malformed
from penstock.protocols.rapidbyte.wire.messages import decode_json
from penstock.protocols.rapidbyte.wire.wasm_binary import MalformedBinary, custom_sections
from penstock.protocols.rapidbyte.wire.wit import PROTOCOL_VERSION

MANIFEST_SECTION = "rapidbyte_manifest_v1"
SCHEMA_SECTION = "rapidbyte_config_schema_v1"
V4_POSTGRES = "source-postgres"
CDC = "cdc"


class ManifestNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that a manifest requests. ``allowed_domains``: exact, ``*.domain`` or ``*``.
    ``allow_runtime_config_domains``: also the hosts that the configuration names."""

    allowed_domains: tuple[str, ...] | None = None
    allow_runtime_config_domains: bool = False


class ManifestFolders(msgspec.Struct, frozen=True, kw_only=True):
    preopens: tuple[str, ...] = ()


class ManifestVariables(msgspec.Struct, frozen=True, kw_only=True):
    allowed_vars: tuple[str, ...] = ()


class ManifestPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The permissions that a manifest requests."""

    network: ManifestNetwork = ManifestNetwork()
    fs: ManifestFolders = ManifestFolders()
    env: ManifestVariables = ManifestVariables()


class ManifestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that a manifest sets. ``max_memory``: a size (``128mb``) or bytes."""

    max_memory: str | int | None = None
    min_memory: str | int | None = None
    timeout_seconds: int | None = None


class SourceAbilities(msgspec.Struct, frozen=True, kw_only=True):
    """``partitioned_read``: the source divides any full refresh into the requested number of parts,
    with each row in one of them. Not a key of v4, whose host ignores it; an unknown feature would
    make the manifest unreadable there."""

    supported_sync_modes: tuple[str, ...]
    partitioned_read: bool = False
    features: tuple[str, ...] = ()


class SupportedWriteMode(msgspec.Struct, frozen=True, kw_only=True):
    mode: str


class DestinationAbilities(msgspec.Struct, frozen=True, kw_only=True):
    supported_write_modes: tuple[SupportedWriteMode, ...]
    features: tuple[str, ...] = ()


class ManifestRoles(msgspec.Struct, frozen=True, kw_only=True):
    source: SourceAbilities | None = None
    destination: DestinationAbilities | None = None
    transform: dict[str, Any] | None = None


class ComponentManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A component's manifest (section 9). ``id``: ``publisher/name``."""

    id: str
    name: str
    version: str
    protocol_version: str
    description: str = ""
    author: str | None = None
    license: str | None = None
    permissions: ManifestPermissions = ManifestPermissions()
    limits: ManifestLimits = ManifestLimits()
    roles: ManifestRoles = ManifestRoles()
    config_schema: Any = None

    @property
    def max_memory(self) -> int | None:
        return parse_size(self.limits.max_memory)

    @property
    def timeout_seconds(self) -> int | None:
        return self.limits.timeout_seconds

    @property
    def features(self) -> tuple[str, ...]:
        """The features of all roles. ``cdc`` allows that sync mode; the others (``stateful``,
        ``exactly_once``, ``schema_auto_migrate``, ``bulk_load_copy``) decide nothing."""
        roles = (self.roles.source, self.roles.destination)
        return tuple(dict.fromkeys(f for role in roles if role is not None for f in role.features))

    @property
    def is_v4_postgres(self) -> bool:
        """Whether this is v4's own Postgres source, which supports more than its manifest
        declares."""
        return self.id.rpartition("/")[2] == V4_POSTGRES


class ManifestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a binary's manifest. ``manifest`` None: it is missing or unusable, and
    ``problem`` has the reason. ``schema``: of the configuration, from its own section, which needs
    no manifest. ``warnings``: defects that do not prevent use. ``assumed``: ``manifest`` is the
    pipeline's ``assume_manifest``."""

    manifest: ComponentManifest | None = None
    schema: dict[str, Any] | None = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    assumed: bool = False


_UNUSED = (
    "it has a manifest of its own, so the pipeline's assume_manifest is not used: permissions and "
    "limits narrow what it grants"
)


def read_manifest(binary: bytes, assume: dict[str, Any] | None = None) -> ManifestResult:
    """Reads the manifest of a component. ``assume``: the pipeline's ``assume_manifest``, used where
    the component's own is missing or broken. Raises ``ConfigError`` where ``assume`` itself is
    broken, even if it is not needed."""
    found = _in_binary(binary)
    if assume is None:
        return found
    try:
        manifest, warnings = _parsed(msgspec.json.encode(assume))
    except ValueError as e:
        raise ConfigError(
            f"assume_manifest is not a manifest: {e}",
            code="config.assume_manifest",
            hint="it takes id, name, version, protocol_version, roles, permissions and limits",
        ) from None
    if found.manifest is not None:
        return msgspec.structs.replace(found, warnings=(*found.warnings, _UNUSED))
    if manifest.config_schema is None:
        manifest = msgspec.structs.replace(manifest, config_schema=found.schema)
    problem = found.problem or "it has no manifest"
    replaced = f"{problem}: the pipeline's assume_manifest stands in for it"
    return msgspec.structs.replace(
        found, manifest=manifest, warnings=(replaced, *found.warnings, *warnings), assumed=True
    )


def _in_binary(binary: bytes) -> ManifestResult:
    text: bytes | None = None
    section: bytes | None = None
    try:
        for name, content in custom_sections(binary):
            if name == MANIFEST_SECTION:
                text = bytes(content)
            elif name == SCHEMA_SECTION:
                section = bytes(content)
    except MalformedBinary as e:
        return ManifestResult(problem=f"its binary cannot be read: {e}")
    schema, schema_warnings = _schema(section)
    if text is None:
        return ManifestResult(problem="it has no manifest", schema=schema, warnings=schema_warnings)
    try:
        manifest, warnings = _parsed(text)
    except ValueError as e:
        problem = f"its manifest cannot be used: {e}"
        return ManifestResult(problem=problem, schema=schema, warnings=schema_warnings)
    if schema is not None:
        manifest = msgspec.structs.replace(manifest, config_schema=schema)
    return ManifestResult(manifest=manifest, schema=schema, warnings=(*warnings, *schema_warnings))


def _schema(section: bytes | None) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Returns the schema, or None with a warning that has the reason."""
    if section is None:
        return None, ()
    try:
        return decode_json(section, dict[str, Any]), ()
    except ValueError as e:
        return None, (f"its section {SCHEMA_SECTION} is ignored: {e}",)


def _parsed(text: bytes) -> tuple[ComponentManifest, tuple[str, ...]]:
    """Decodes a manifest. Returns it with warnings. Raises ``ValueError``, also for a limit that
    cannot be parsed, which must not be taken for unlimited."""
    manifest = decode_json(text, ComponentManifest)
    memory, seconds = manifest.limits.max_memory, manifest.limits.timeout_seconds
    if memory is not None and not manifest.max_memory:
        raise ValueError(f"limits.max_memory {memory!r} is not a size")
    if seconds is not None and seconds < 1:
        raise ValueError(f"limits.timeout_seconds {seconds} is not a number of seconds")
    warnings: tuple[str, ...] = ()
    wrong = malformed(manifest.permissions.network.allowed_domains or ())
    if wrong:
        listed = ", ".join(map(ascii, wrong))
        warnings = (
            f"its allowed_domains have entries that are not hosts and allow nothing: {listed}",
        )
    never = [name for name in manifest.permissions.env.allowed_vars if withheld(name)]
    if never:
        warnings = (
            *warnings,
            "its env.allowed_vars name variables of Spark's and of Penstock's own, which no "
            f"connector gets: {', '.join(map(ascii, never))}",
        )
    if manifest.protocol_version != PROTOCOL_VERSION:
        warnings = (
            *warnings,
            f"it was made for protocol version {manifest.protocol_version}, not "
            f"{PROTOCOL_VERSION}: it is used as it is",
        )
    return manifest, warnings


def role_problems(manifest: ComponentManifest, role: Role) -> list[str]:
    """Returns why the component cannot have this role (section 9); empty: it can."""
    if getattr(manifest.roles, role) is None:
        has = [r for r in ("source", "destination", "transform") if getattr(manifest.roles, r)
               is not None]  # fmt: skip
        reason = f"it is a {' and a '.join(has)}" if has else "its manifest names no role"
        return [f"connector '{manifest.name}' does not support the {role} role: {reason}"]
    return []


def mode_problems(
    manifest: ComponentManifest,
    role: Role,
    *,
    sync_modes: Sequence[str] = (),
    write_mode: str | None = None,
) -> list[str]:
    """Returns a message for each requested mode that the manifest does not name. The sync mode
    ``cdc`` may also be named as a feature; v4's own Postgres source supports it without naming it
    (reference, section 3.2)."""
    problems: list[str] = []
    source, destination = manifest.roles.source, manifest.roles.destination
    if role == "source" and source is not None:
        supported = set(source.supported_sync_modes) | ({CDC} & set(source.features))
        supported |= {CDC} if manifest.is_v4_postgres else set()
        problems += [
            f"connector '{manifest.name}' does not support sync_mode {mode} (it names "
            f"{', '.join(sorted(supported)) or 'none'})"
            for mode in dict.fromkeys(sync_modes)
            if mode not in supported
        ]
    if role == "destination" and destination is not None and write_mode is not None:
        modes = [m.mode for m in destination.supported_write_modes]
        if write_mode not in modes:
            problems.append(
                f"connector '{manifest.name}' does not support write_mode {write_mode} (it names "
                f"{', '.join(modes) or 'none'})"
            )
    return problems


def config_schema(manifest: ComponentManifest | None) -> dict[str, Any] | None:
    """Returns the JSON Schema of the configuration in a manifest; None: the configuration is not
    checked."""
    schema = manifest.config_schema if manifest is not None else None
    return cast(dict[str, Any], schema) if isinstance(schema, dict) else None


def spec_of(found: ManifestResult, log: EventSink) -> ConnectorSpec:
    """Converts a manifest into the engine's ``ConnectorSpec``. Warnings go to ``log``."""
    for warning in found.warnings:
        log(LogEvent("WARN", f"the connector's manifest: {warning}"))
    manifest = found.manifest
    if manifest is None:
        log(LogEvent("WARN", f"the connector is granted nothing: {found.problem}"))
        return ConnectorSpec(protocol="rapidbyte", config_schema=found.schema or {})
    abilities: dict[str, Any] = msgspec.to_builtins(manifest)
    abilities.pop("config_schema", None)
    return ConnectorSpec(
        protocol="rapidbyte",
        config_schema=config_schema(manifest) or {},
        abilities={"manifest": abilities},
        protocol_version=manifest.protocol_version or PROTOCOL_VERSION,
    )

"""Resolves a reference to a runnable connector, and builds its environment first if it is missing.

The same for every role. Not here: the requests of each role (``source``, ``destination``,
``transform``), building (``install``), running (``launch``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from penstock.config.protocol_spec import spec_of
from penstock.config.sections import ContainerSettings, Limits, Permissions
from penstock.connectors.component_files import component_launch
from penstock.connectors.connector import (
    RunnableConnector,
    installed_launch,
    local_launch,
    restricted,
    silent,
)
from penstock.connectors.declarative import manifest_launch, manifests_of, wanted_for
from penstock.connectors.images import image_launch
from penstock.connectors.install import ensure
from penstock.connectors.launch import Launch
from penstock.connectors.package_request import PackageRequest
from penstock.connectors.reference import ConnectorRef, RefKind, parse_ref
from penstock.connectors.uv import Progress
from penstock.errors import ConfigError, Role, in_role
from penstock.protocols import load
from penstock.protocols.connection import EventSink
from penstock.protocols.contract import ProtocolPackage
from penstock.runtimes.contract import RunTimeouts

C = TypeVar("C", bound=RunnableConnector)


def quiet(text: str) -> None:
    """Drops a line of progress."""


class ResolveOptions(TypedDict, total=False):
    """Options of :func:`resolve`. ``upgrade``, ``constraints``: see ``install``. ``env_keys``:
    environment variables that the connector gets. ``base``: the folder where relative paths start
    and local commands run (default: the current one). ``extra_secrets``: see ``RunnableConnector``.
    ``permissions``, ``limits``: apply to every request. ``settings``: see ``Component``.
    ``builds``: packages without a wheel may be built, under ``permissions`` and ``limits`` too
    (default: yes). ``container``: how an image runs. ``timeouts``: the pipeline's, for the spec
    (default: those of verbs without a pipeline). ``package``, ``as_before``: which package a name
    means (``engine.plan.named_packages``)."""

    log: EventSink
    progress: Progress
    upgrade: bool
    constraints: Sequence[str]
    env_keys: Sequence[str]
    base: Path | None
    extra_secrets: Sequence[str]
    permissions: Permissions | None
    limits: Limits | None
    settings: Mapping[str, Any]
    builds: bool
    container: ContainerSettings
    timeouts: RunTimeouts
    package: str
    as_before: bool


def resolve(
    kind: type[C], ref: ConnectorRef | str, connectors: Path, **how: Unpack[ResolveOptions]
) -> C:
    """Returns the connector of class ``kind``. ``connectors``: the folder of environments. Raises
    ``ConfigError`` (no such form; not a connector of this role), the role's error."""
    role = kind.ROLE
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    if ref.protocol is None:
        raise kind.stranger(ref)
    protocol = load(ref.protocol)
    kind.takes(ref, protocol)
    here = (how.get("base") or Path.cwd()).absolute()
    env_keys, constraints = how.get("env_keys", ()), how.get("constraints", ())
    permissions, limits = how.get("permissions"), how.get("limits")
    builds, upgrade = how.get("builds", True), how.get("upgrade", False)
    files = manifests_of(ref) if role == "source" else None
    entry = None
    if ref.kind is RefKind.image:
        container, progress = how.get("container", ContainerSettings()), how.get("progress", quiet)
        launch = image_launch(ref, role, env_keys, container, progress, upgrade=upgrade)
    elif ref.kind is RefKind.component:
        launch = component_launch(ref, here, connectors, how.get("settings", {}))
    elif ref.kind is RefKind.query:
        launch = Launch(protocol=protocol.name, command=(ref.target or "",))
    elif ref.kind is RefKind.package or files is not None:
        _must_be(role, ref)
        asked = wanted_for(ref, files) if files is not None else wanted(ref, protocol)
        asked = replace(
            asked,
            constraints=tuple(constraints),
            builds=builds,
            permissions=permissions,
            limits=limits,
            role=role,
            as_before=how.get("as_before", False),
        )
        if ref.kind is RefKind.package and "package" in how:
            asked = replace(asked, package=how["package"], alternatives=())
        entry = ensure(asked, connectors, how.get("progress", quiet), upgrade=upgrade)
        with in_role(role):
            launch = installed_launch(protocol, entry, here, env_keys)
        if files is not None:
            launch = manifest_launch(ref, files, launch, entry, here)
            entry = None  # its spec and its streams come from the manifest, which may change
    else:
        launch = local_launch(ref, protocol, here, env_keys)
    return kind(
        ref,
        protocol,
        restricted(launch, role, permissions, limits, builds),
        entry=entry,
        log=how.get("log", silent),
        extra_secrets=how.get("extra_secrets", ()),
        timeouts=how.get("timeouts"),
    )


def _must_be(role: Role, ref: ConnectorRef) -> None:
    """Raises ``ConfigError`` for a name that belongs to the other role."""
    spec = spec_of(ref.protocol or "")
    own, other = spec.sources, spec.destinations
    if role == "destination":
        own, other = other, own
    name = ref.name or ""
    if name.startswith(other) and not name.startswith(own):
        raise ConfigError(
            f"{ref.text!r} is not named like a {role} connector",
            code=f"connector.not_a_{role}",
            hint=f"{role}s of this protocol are named {spec.name}:{(*own, '')[0]}NAME",
        )


def wanted(ref: ConnectorRef, protocol: ProtocolPackage) -> PackageRequest:
    """Returns the request to ``install`` for a reference of kind package."""
    name = ref.name or ""
    packages = protocol.package_names(name) if ref.url is None else (name,)
    return PackageRequest(
        protocol=protocol.name,
        reference=ref.text,
        name=name,
        package=packages[0],
        alternatives=packages[1:],
        version=ref.version,
        url=ref.url,
        scripts=protocol.script_names(name),
        prefixes=spec_of(protocol.name).prefixes,
    )

"""Opens a component: reads its binary, manifest and settings, computes its permissions, and builds
the :class:`~stage.Stage` that roles run.

``Component.settings`` crosses processes as plain data and is decoded here. Neighbours:
``connectors`` fills it; ``rapidbyte.source_stream``, ``rapidbyte.transform`` and
``rapidbyte.write.writer`` run the stage.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec

from penstock.config.sections import Limits
from penstock.errors import ConfigError, Defect, Role
from penstock.model.catalog import CheckResult, ConfiguredStream, ConnectorSpec, SyncMode
from penstock.protocols.connection import EventSink
from penstock.protocols.contract import EffectiveLimit
from penstock.protocols.rapidbyte.declared.manifest import (
    ComponentManifest,
    ManifestResult,
    mode_problems,
    read_manifest,
    role_problems,
    spec_of,
)
from penstock.protocols.rapidbyte.declared.permissions import (
    EffectivePermissions,
    declared_by_manifest,
    effective,
    wide_permissions,
)
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.deadlines import LONGEST_CHECK, AnswerTimeout
from penstock.protocols.rapidbyte.guest.engine_events import check_result, log_event
from penstock.protocols.rapidbyte.guest.errors import explain
from penstock.protocols.rapidbyte.guest.host import HostBounds
from penstock.protocols.rapidbyte.guest.session import CompiledConnector, load
from penstock.protocols.rapidbyte.guest.stage import HostMemory, QueueBounds, Stage
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.runtimes.contract import ConnectionStats, RunTimeouts, Start
from penstock.runtimes.env import secrets_of
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.runtimes.wasm.contract import Trap
from penstock.store.keys import OpenKeys

_WAITING = 64 << 20  # bytes of frames that wait before or behind a stage without a memory limit


class OpenedComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A component that was read but not compiled: its binary, its manifest, its settings."""

    runtime: Any  # ComponentRuntime
    settings: ComponentSettings
    found: ManifestResult
    binary: bytes

    def allowed(self, config: dict[str, Any]) -> EffectivePermissions:
        """Returns its effective permissions and limits with this configuration."""
        return _effective(self.runtime, self.found, self.settings, config)

    def stage(
        self, role: Role, config: dict[str, Any], timeouts: RunTimeouts | None = None
    ) -> Stage:
        """Compiles the component and builds the stage of a role. Raises ``ConfigError``,
        ``SourceError``, ``DestinationError``."""
        runtime: ComponentRuntime = self.runtime
        manifest = self.found.manifest
        problems = role_problems(manifest, role) if manifest is not None else []
        if problems:
            raise ConfigError(
                problems[0],
                code="connector.role",
                hint="a component has one role only: name one that was made for this",
            )
        allowed = self.allowed(config)
        bounds, waiting, reserved = HostBounds(), _WAITING, 0
        if timeouts is not None:
            bounds = HostBounds(timeout=timeouts.heartbeat)
        if allowed.max_memory is not None:
            share = HostMemory.of(allowed.max_memory)
            all_bytes = min(bounds.frames.all_bytes, share.frames)
            frame_bytes = min(bounds.frames.frame_bytes, all_bytes)
            frames = FrameBounds(frame_bytes=frame_bytes, all_bytes=all_bytes, pooled=False)
            bounds = msgspec.structs.replace(bounds, frames=frames)
            waiting, reserved = min(waiting, share.waiting // 2), sum(share)
        limits = runtime.limits or Limits()
        bounds = msgspec.structs.replace(
            bounds,
            keys=limits.max_keys or bounds.keys,
            dead_letters=limits.max_dead_letters or bounds.dead_letters,
        )
        runtime.masker.add(secrets_of(allowed.variables))
        half = max(self.settings.limits().max_batch_bytes, 1 << 20)
        return Stage(
            loaded=self._loaded(role),
            config=config,
            allowed=allowed,
            instance=self.settings.place or role,
            keys=runtime.keys(),
            host_bytes=reserved,
            bounds=bounds,
            pressure=QueueBounds(
                inbox_bytes=min(half, waiting),
                outbox_bytes=min(half, waiting),
                codec=self.settings.resources.compression,
            ),
            masker=runtime.masker,
        )

    def _loaded(self, role: Role) -> CompiledConnector:
        runtime: ComponentRuntime = self.runtime
        key = (runtime.component.digest, role)
        if key not in _LOADED:
            try:
                _LOADED[key] = load(self.binary, role, runtime.cache())
            except Trap as e:
                raise explain(role, e) from None
        return _LOADED[key]


_LOADED: dict[tuple[str, Role], CompiledConnector] = {}
"""The components that this process has compiled, by digest and role. A ``CompiledConnector``
belongs to its process, which must not fork."""


def runtime_of(
    launch: Start,
    masker: Masker | None = None,
    stats: ConnectionStats | None = None,
    log_stderr: Callable[[str], None] | None = None,
    keys: OpenKeys | None = None,
) -> ComponentRuntime:
    if launch.component is None:
        raise Defect("a Rapidbyte connector is a WebAssembly component")
    return ComponentRuntime(
        launch.component,
        permissions=launch.permissions,
        limits=launch.limits,
        masker=masker,
        stats=stats,
        log_stderr=log_stderr,
        keys=keys,
        role=launch.role,
    )


def open_component(runtime: ComponentRuntime) -> OpenedComponent:
    """Reads a component and its manifest. Raises ``ConfigError`` (a broken ``assume_manifest``),
    ``SourceError`` (no such file)."""
    settings = msgspec.convert(runtime.component.settings, ComponentSettings)
    binary = runtime.binary()
    found = read_manifest(binary, settings.assume_manifest)
    memory = _effective(runtime, found, settings, {}).max_memory
    if memory is not None:  # a batch is one frame, and frames have a share of the memory
        batch = min(settings.resources.max_batch_bytes or _WAITING, HostMemory.of(memory).frames)
        resources = msgspec.structs.replace(settings.resources, max_batch_bytes=batch)
        settings = msgspec.structs.replace(settings, resources=resources)
    return OpenedComponent(runtime=runtime, settings=settings, found=found, binary=binary)


def _effective(
    runtime: ComponentRuntime,
    found: ManifestResult,
    settings: ComponentSettings,
    config: dict[str, Any],
) -> EffectivePermissions:
    most = settings.resources.max_memory or None
    return effective(
        found, runtime.permissions, runtime.limits, config, most, settings.folder or ""
    )


class ComponentRole:
    """Answers ``spec`` and ``check``, which are the same for a source, transform and
    destination."""

    role: ClassVar[Role]

    def spec(
        self, runtime: ComponentRuntime, timeouts: RunTimeouts, log: EventSink
    ) -> ConnectorSpec:
        return spec_of(open_component(runtime).found, log)

    def check(
        self,
        runtime: ComponentRuntime,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> CheckResult:
        stage = open_component(runtime).stage(self.role, config, timeouts)
        with closing(stage.keys):
            within = AnswerTimeout.of(timeouts, LONGEST_CHECK)
            return check_result(
                probe.check(stage, lambda logged: log(log_event(logged)), within), log
            )


_FEATURES = "manifest; cdc allows that sync mode, nothing else is decided by them"  # shown by plan


class RapidbyteManifest:
    """Reports a component's requests and grants (``ManifestRole`` of ``protocols.contract``)."""

    def asks(self, launch: Start) -> list[EffectiveLimit]:
        return declared_by_manifest(open_component(runtime_of(launch)).found)

    def wide(self, launch: Start) -> list[str]:
        return wide_permissions(open_component(runtime_of(launch)).found, launch.permissions)

    def effective(
        self, launch: Start, config: dict[str, Any]
    ) -> tuple[list[EffectiveLimit], list[str]]:
        component = open_component(runtime_of(launch))
        found = component.found
        notes = [*found.warnings]
        lines = list(component.allowed(config).rulings)
        if found.manifest is None:
            notes.append(f"it is granted nothing: {found.problem}")
        elif found.manifest.features:
            lines.append(EffectiveLimit("features", found.manifest.features, _FEATURES))
        return lines, notes

    def problems(self, spec: ConnectorSpec, streams: Sequence[ConfiguredStream]) -> list[str]:
        """Returns a message for each sync mode that the source does not support. v4's catalogs do
        not list cdc, so the manifest decides; without a manifest the catalog does."""
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, ComponentManifest)
        if manifest is None:
            return [
                f"stream {s.id} does not support sync_mode cdc: there is no manifest that names it,"
                " and the catalog does not"
                for s in streams
                if s.sync_mode is SyncMode.cdc and SyncMode.cdc not in s.stream.sync_modes
            ]
        modes = [s.sync_mode.value for s in streams]
        unsupported = mode_problems(manifest, "source", sync_modes=modes)
        return [*role_problems(manifest, "source"), *unsupported]

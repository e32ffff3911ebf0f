"""What a pipeline says of a component beside its configuration, and the stage that is made of both.

``Component.settings`` crosses processes as plain data; here it is read. Neighbours: ``connectors``
fills it, ``rapidbyte.source_stream`` and ``rapidbyte.write.writer`` converse with the
:class:`~stage.Stage`.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec

from penstock.config.sections import Limits
from penstock.errors import ConfigError, Defect, Role
from penstock.model.catalog import CheckResult, ConfiguredStream, ConnectorSpec, SyncMode
from penstock.protocols.contract import EventSink, Held
from penstock.protocols.rapidbyte.declared.manifest import (
    Found,
    Manifest,
    mode_problems,
    read_manifest,
    role_problems,
    spec_of,
)
from penstock.protocols.rapidbyte.declared.permissions import Effective, asks, effective, wide
from penstock.protocols.rapidbyte.declared.settings import Settings
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.deadlines import LONGEST_CHECK, Within
from penstock.protocols.rapidbyte.guest.engine_events import line, result_of
from penstock.protocols.rapidbyte.guest.errors import explain
from penstock.protocols.rapidbyte.guest.host import HostBounds
from penstock.protocols.rapidbyte.guest.session import Loaded, load
from penstock.protocols.rapidbyte.guest.stage import Pressure, Share, Stage
from penstock.protocols.rapidbyte.wire.frame_check import FrameBounds
from penstock.runtimes.contract import ConnectionStats, Start, Timeouts
from penstock.runtimes.env import secrets_of
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.runtimes.wasm.contract import Trap
from penstock.state.keys import OpenKeys

_WAITING = 64 << 20


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A component that was read: what it says of itself, what it may reach and use."""

    runtime: Any  # ComponentRuntime
    settings: Settings
    found: Found
    binary: bytes

    def allowed(self, config: dict[str, Any]) -> Effective:
        return _effective(self.runtime, self.found, self.settings, config)

    def stage(self, role: Role, config: dict[str, Any], timeouts: Timeouts | None = None) -> Stage:
        """Loaded, compiled and allowed. Raises ``ConfigError``, ``SourceError``,
        ``DestinationError``."""
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
        bounds, waiting, aside = HostBounds(), _WAITING, 0
        if timeouts is not None:
            bounds = HostBounds(patience=timeouts.heartbeat)
        if allowed.max_memory is not None:
            share = Share.of(allowed.max_memory)
            held = min(bounds.frames.all_bytes, share.frames)
            frames = FrameBounds(
                frame_bytes=min(bounds.frames.frame_bytes, held), all_bytes=held, pooled=False
            )
            bounds = msgspec.structs.replace(bounds, frames=frames)
            waiting, aside = min(waiting, share.waiting // 2), sum(share)
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
            aside=aside,
            bounds=bounds,
            pressure=Pressure(
                inbox_bytes=min(half, waiting),
                outbox_bytes=min(half, waiting),
                codec=self.settings.resources.compression,
            ),
            masker=runtime.masker,
        )

    def _loaded(self, role: Role) -> Loaded:
        runtime: ComponentRuntime = self.runtime
        key = (runtime.component.digest, role)
        if key not in _LOADED:
            try:
                _LOADED[key] = load(self.binary, role, runtime.cache())
            except Trap as e:
                raise explain(role, e) from None
        return _LOADED[key]


_LOADED: dict[tuple[str, Role], Loaded] = {}
"""What this process has loaded; a ``Loaded`` belongs to its process, which does not fork."""


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


def opened(runtime: ComponentRuntime) -> Opened:
    """Raises ``ConfigError`` (a broken ``assume_manifest``), ``SourceError`` (no such file)."""
    settings = msgspec.convert(runtime.component.settings, Settings)
    binary = runtime.binary()
    found = read_manifest(binary, settings.assume_manifest)
    memory = _effective(runtime, found, settings, {}).max_memory
    if memory is not None:  # a batch is a frame, and frames have a share of it
        told = settings.resources
        batch = min(told.max_batch_bytes or _WAITING, Share.of(memory).frames)
        told = msgspec.structs.replace(told, max_batch_bytes=batch)
        settings = msgspec.structs.replace(settings, resources=told)
    return Opened(runtime=runtime, settings=settings, found=found, binary=binary)


def _effective(
    runtime: ComponentRuntime, found: Found, settings: Settings, config: dict[str, Any]
) -> Effective:
    most = settings.resources.max_memory or None
    return effective(found, runtime.permissions, runtime.limits, config, most)


class ComponentRole:
    """What every role is asked when no stream runs."""

    role: ClassVar[Role]

    def spec(self, runtime: ComponentRuntime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        return spec_of(opened(runtime).found, log)

    def check(
        self,
        runtime: ComponentRuntime,
        config: dict[str, Any],
        timeouts: Timeouts,
        log: EventSink,
    ) -> CheckResult:
        stage = opened(runtime).stage(self.role, config, timeouts)
        with closing(stage.keys):
            within = Within.of(timeouts, LONGEST_CHECK)
            return result_of(probe.check(stage, lambda told: log(line(told)), within), log)


_FEATURES = "manifest; cdc allows that sync mode, nothing else is decided by them"


class RapidbyteManifest:
    """``ManifestRole`` of ``protocols.contract``."""

    def asks(self, launch: Start) -> list[Held]:
        return asks(opened(runtime_of(launch)).found)

    def wide(self, launch: Start) -> list[str]:
        return wide(opened(runtime_of(launch)).found, launch.permissions)

    def held(self, launch: Start, config: dict[str, Any]) -> tuple[list[Held], list[str]]:
        what = opened(runtime_of(launch))
        found = what.found
        notes = [*found.warnings]
        lines = list(what.allowed(config).ruled)
        if found.manifest is None:
            notes.append(f"it is granted nothing: {found.problem}")
        elif found.manifest.features:
            lines.append(Held("features", found.manifest.features, _FEATURES))
        return lines, notes

    def problems(self, spec: ConnectorSpec, streams: Sequence[ConfiguredStream]) -> list[str]:
        """A mode that it does not name. v4's catalogs do not list cdc, so the manifest alone says
        who can do it; where there is none, the catalog must."""
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, Manifest)
        if manifest is None:
            return [
                f"stream {s.id} does not support sync_mode cdc: there is no manifest that names it,"
                " and the catalog does not"
                for s in streams
                if s.sync_mode is SyncMode.cdc and SyncMode.cdc not in s.stream.sync_modes
            ]
        modes = [s.sync_mode.value for s in streams]
        wrong = mode_problems(manifest, "source", sync_modes=modes)
        return [*role_problems(manifest, "source"), *wrong]

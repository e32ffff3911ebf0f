"""What a pipeline says of a component beside its configuration, and the stage that is made of both.

``Component.settings`` crosses processes as plain data; here it is read. Neighbours: ``connectors``
fills it, ``reader`` and ``writer`` converse with the :class:`~stage.Stage`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.config.sections import Resources, SchemaEvolution
from penstock.errors import ConfigError, Defect
from penstock.model.catalog import ConfiguredStream, ConnectorSpec, SyncMode
from penstock.protocols.contract import Held
from penstock.protocols.rapidbyte import messages
from penstock.protocols.rapidbyte.failures import explain
from penstock.protocols.rapidbyte.host import HostBounds
from penstock.protocols.rapidbyte.lifecycle import Loaded, load
from penstock.protocols.rapidbyte.manifest import (
    Found,
    Manifest,
    mode_problems,
    read_manifest,
    role_problems,
)
from penstock.protocols.rapidbyte.messages import Role
from penstock.protocols.rapidbyte.overrides import Pins, flush_bytes
from penstock.protocols.rapidbyte.permissions import Effective, effective
from penstock.protocols.rapidbyte.stage import Pressure, Stage
from penstock.runtimes.contract import Runtime, Timeouts
from penstock.runtimes.wasm.component import ComponentRuntime
from penstock.runtimes.wasm.contract import Trap


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``place``: its role and position in the pipeline, which owns its keys. ``on_data_error``,
    ``schema_evolution``: the destination's policies, which every stage is told."""

    place: str = ""
    assume_manifest: dict[str, Any] | None = None
    resources: Resources = Resources()
    on_data_error: str = "fail"
    schema_evolution: SchemaEvolution = SchemaEvolution(type_change="fail")

    def limits(self, max_records: int | None = None) -> messages.StreamLimits:
        told = self.resources
        return messages.StreamLimits(
            max_batch_bytes=told.max_batch_bytes or messages.StreamLimits().max_batch_bytes,
            max_inflight_batches=told.max_inflight_batches,
            checkpoint_interval_bytes=told.checkpoint_interval_bytes,
            checkpoint_interval_rows=told.checkpoint_interval_rows,
            checkpoint_interval_seconds=told.checkpoint_interval_seconds,
            max_records=msgspec.UNSET if max_records is None else max_records,
        )

    def policies(self) -> messages.Policies:
        evolution = msgspec.to_builtins(self.schema_evolution)
        return msgspec.convert(
            {"on_data_error": self.on_data_error, "schema_evolution": evolution}, messages.Policies
        )

    def copy_flush_bytes(self) -> int | None:
        pinned = self.resources.autotune.pin_copy_flush_bytes
        return flush_bytes(Pins(copy_flush_bytes=pinned)).value


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A component that was read: what it says of itself, what it may reach and use."""

    runtime: Any  # ComponentRuntime
    settings: Settings
    found: Found
    binary: bytes

    def allowed(self, config: dict[str, Any]) -> Effective:
        return effective(self.found, self.runtime.permissions, self.runtime.limits, config)

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
        bounds = HostBounds()
        if timeouts is not None:
            bounds = HostBounds(patience=timeouts.heartbeat)
        half = max(self.settings.limits().max_batch_bytes, 1 << 20)
        return Stage(
            loaded=self._loaded(role),
            config=config,
            allowed=self.allowed(config),
            instance=self.settings.place or role,
            keys=runtime.keys(),
            bounds=bounds,
            pressure=Pressure(
                inbox_bytes=min(half, 64 << 20),
                outbox_bytes=min(half, 64 << 20),
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
                raise explain(role, e, None, runtime.masker) from None
        return _LOADED[key]


_LOADED: dict[tuple[str, Role], Loaded] = {}
"""What this process has loaded; a ``Loaded`` belongs to its process, which does not fork."""


def opened(runtime: Runtime) -> Opened:
    """Raises ``ConfigError`` (a broken ``assume_manifest``), ``SourceError`` (no such file)."""
    if not isinstance(runtime, ComponentRuntime):
        raise Defect("a Rapidbyte connector is a WebAssembly component")
    settings = msgspec.convert(runtime.component.settings, Settings)
    binary = runtime.binary()
    found = read_manifest(binary, settings.assume_manifest)
    return Opened(runtime=runtime, settings=settings, found=found, binary=binary)


_FEATURES = "manifest; cdc allows that sync mode, nothing else is decided by them"


class RapidbyteManifest:
    """``ManifestRole`` of ``protocols.contract``."""

    def held(self, runtime: Runtime, config: dict[str, Any]) -> tuple[list[Held], list[str]]:
        what = opened(runtime)
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

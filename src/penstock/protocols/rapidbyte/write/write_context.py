"""Builds the requirements of one write's runs: the stage, the stream context, the frame encoder,
and the maximum number of live runs.

Pure except for compiling the component. Neighbours: ``rapidbyte.guest.component`` (stage),
``writer``.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from penstock.model.catalog import StreamId, SyncMode
from penstock.model.state import StateScope, StateType
from penstock.model.types import RowSchema
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.declared.stream_context import WRITE_MODES
from penstock.protocols.rapidbyte.guest.component import OpenedComponent
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import CursorInfo, StreamContext, WriteMode
from penstock.protocols.rapidbyte.wire.schema import DELETED_AT, OPERATION
from penstock.protocols.rapidbyte.write.frame_encoder import FrameEncoder, column_names
from penstock.protocols.writing import WriteRequest, WriteStream
from penstock.runtimes.wasm.component import ComponentRuntime

AT_ONCE = 8  # runs; each has an instance and two threads
MEMORY = 2 << 30  # bytes of all runs together, where each has a memory limit
_WAITING = 64 << 20  # bytes of frames that wait for all runs
_NARROW = "dest-postgres"
_FLUSH = "copy_flush_bytes"
"""The key of a destination's configuration that the hint of this name would replace."""


@dataclass(frozen=True)
class WriteSettings:
    """The settings of all runs of a write. ``stage``: its inbox gets a run's share of the bytes
    that may wait. ``at_once``: how many runs may live. ``narrow``: the destination refuses
    decimals. ``flush_bytes``: when it must flush a COPY; None: its own choice."""

    stage: Stage
    settings: ComponentSettings
    runtime: ComponentRuntime
    at_once: int
    narrow: bool
    flush_bytes: int | None = None

    @staticmethod
    def of(component: OpenedComponent, request: WriteRequest) -> "WriteSettings":
        """Compiles the component. Raises ``ConfigError``, ``DestinationError``."""
        stage = component.stage("destination", request.config, request.timeouts)
        memory = stage.allowed.max_memory
        at_once = AT_ONCE if memory is None else max(1, min(AT_ONCE, MEMORY // max(memory, 1)))
        own = _FLUSH in request.config
        share = min(_WAITING // at_once, stage.pressure.inbox_bytes)
        pressure = msgspec.structs.replace(stage.pressure, inbox_bytes=share)
        return WriteSettings(
            stage=replace(stage, pressure=pressure),
            settings=component.settings,
            runtime=component.runtime,
            at_once=at_once,
            narrow=is_narrow(component.found.manifest),
            flush_bytes=component.settings.copy_flush_bytes(memory, configured=own).value,
        )

    def stage_of(self, stream: WriteStream) -> Stage:
        """Returns the stage of one run, with its own port to keys: a port serves one scope at a
        time."""
        keys = self.runtime.keys()
        keys.begin(StateScope(StateType.stream, stream.id).key)
        return replace(self.stage, keys=keys, owner=stream.id.key)

    def encoder(self, stream: WriteStream, version: int) -> FrameEncoder:
        schema, limit = sent_schema(stream, version), self.settings.limits().max_batch_bytes
        return FrameEncoder(schema, limit, narrow=self.narrow, names=self._names(schema))

    def context(self, stream: WriteStream, version: int) -> StreamContext:
        """Returns the stream context of a run (section 6), with the names of the destination's
        table."""
        configured, names = stream.configured, self._names(sent_schema(stream, version))
        mode = write_mode(stream)
        key = [names.get(path[0], path[0]) for path in configured.primary_key]
        everything = configured.columns is None and not configured.left_out
        cursor = None
        if configured.sync_mode is SyncMode.incremental and len(configured.cursor_field) == 1:
            field = configured.cursor_field[0]
            cursor = CursorInfo(cursor_field=names.get(field, field))
        return StreamContext(
            stream_name=table_name(stream.target),
            sync_mode=configured.sync_mode.value,
            cursor_info=cursor,
            limits=self.settings.limits(),
            policies=self.settings.policies(),
            write_mode=WriteMode(
                mode=cast(Any, mode), primary_key=key if mode == "upsert" else None
            ),
            selected_columns=None if everything else list(names.values()),
            effective_parallelism=configured.shards,
            copy_flush_bytes_override=self.flush_bytes,
        )

    def _names(self, schema: RowSchema) -> dict[str, str]:
        return column_names(schema, original=self.settings.original_names)


def sent_schema(stream: WriteStream, version: int) -> RowSchema:
    """Returns the columns of the stream's frames: without ``DELETED_AT`` where there is
    ``OPERATION``, which has the same information. Destinations of v4 use ``OPERATION``, and would
    add the other column to their table."""
    schema = stream.schemas[version]
    changes = {OPERATION, DELETED_AT} <= {f.source for f in schema.fields}
    if not changes or stream.configured.sync_mode is not SyncMode.cdc:
        return schema
    fields = tuple(f for f in schema.fields if f.source != DELETED_AT)
    return msgspec.structs.replace(schema, fields=fields)


def write_mode(stream: WriteStream) -> str:
    """Returns v4's name for the stream's destination sync mode: ``append``, ``replace`` or
    ``upsert``."""
    return WRITE_MODES[stream.configured.destination_sync_mode]


def replaces(stream: WriteStream) -> bool:
    """Returns whether a run replaces the rows of the stream's table."""
    return write_mode(stream) == "replace"


def table_name(target: StreamId) -> str:
    """Returns the name of a stream's table, ``namespace.name``, since v4 has no namespaces."""
    return str(target)


def is_narrow(manifest: ComponentManifest | None) -> bool:
    """Returns whether the destination refuses decimals: v4's own does."""
    return manifest is not None and manifest.id.endswith(_NARROW)

"""What holds for every run of one write: the stage, its context, its frames, how many at once.

Pure but for loading the component. Neighbours: ``rapidbyte.guest.component`` (what the pipeline
says), ``writer``.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from penstock.model.catalog import StreamId, SyncMode
from penstock.model.state import StateScope, StateType
from penstock.model.types import RowSchema
from penstock.protocols.contract import WriteRequest, WriteStream
from penstock.protocols.rapidbyte.declared.manifest import Manifest
from penstock.protocols.rapidbyte.declared.settings import Settings
from penstock.protocols.rapidbyte.declared.stream_context import WRITE_MODES
from penstock.protocols.rapidbyte.guest.component import Opened
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import CursorInfo, StreamContext, WriteMode
from penstock.protocols.rapidbyte.write.frame_encoder import Frames
from penstock.runtimes.wasm.component import ComponentRuntime

AT_ONCE = 8  # streams; each has an instance and two threads
MEMORY = 2 << 30  # that all of them may use together, where each has a bound
_WAITING = 64 << 20  # bytes of frames that wait for all of them
_NARROW = "dest-postgres"


@dataclass(frozen=True)
class Terms:
    """``stage``: its inbox is a run's share of what may wait for all."""

    stage: Stage
    settings: Settings
    runtime: ComponentRuntime
    at_once: int
    narrow: bool

    @staticmethod
    def of(what: Opened, request: WriteRequest) -> "Terms":
        """Raises ``ConfigError``, ``DestinationError``."""
        stage = what.stage("destination", request.config, request.timeouts)
        memory = stage.allowed.max_memory
        at_once = AT_ONCE if memory is None else max(1, min(AT_ONCE, MEMORY // max(memory, 1)))
        share = min(_WAITING // at_once, stage.pressure.inbox_bytes)
        pressure = msgspec.structs.replace(stage.pressure, inbox_bytes=share)
        return Terms(
            stage=replace(stage, pressure=pressure),
            settings=what.settings,
            runtime=what.runtime,
            at_once=at_once,
            narrow=is_narrow(what.found.manifest),
        )

    def stage_of(self, stream: WriteStream) -> Stage:
        """For one run of the stream: ports to a connector's keys are for one scope at a time."""
        keys = self.runtime.keys()
        keys.begin(StateScope(StateType.stream, stream.id).key)
        return replace(self.stage, keys=keys, owner=stream.id.key)

    def frames(self, schema: RowSchema) -> Frames:
        return Frames(schema, self.settings.limits().max_batch_bytes, narrow=self.narrow)

    def context(self, stream: WriteStream, version: int) -> StreamContext:
        """As the source's (section 6), in the words of the destination's table."""
        configured, schema = stream.configured, stream.schemas[version]
        names = {f.source: f.name for f in schema.fields}
        mode = write_mode(stream)
        key = [names.get(path[0], path[0]) for path in configured.primary_key]
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
            selected_columns=None if configured.columns is None else list(names.values()),
            effective_parallelism=configured.shards,
            copy_flush_bytes_override=self.settings.copy_flush_bytes(),
        )


def write_mode(stream: WriteStream) -> str:
    return WRITE_MODES[stream.configured.destination_sync_mode]


def replaces(stream: WriteStream) -> bool:
    return write_mode(stream) == "replace"


def table_name(target: StreamId) -> str:
    """v4 has no namespaces: they are the name's beginning."""
    return str(target)


def is_narrow(manifest: Manifest | None) -> bool:
    """v4's own destination refuses decimals (reference, rapidbyte §9)."""
    return manifest is not None and manifest.id.endswith(_NARROW)

"""What a pipeline says of a component beside its configuration.

``Component.settings`` crosses processes as plain data and becomes a :class:`Settings` in
``rapidbyte.guest.component``, which makes a stage of it. Neighbours: ``stream_context`` and
``sharding`` read it.
"""

from typing import Any

import msgspec

from penstock.config.sections import Resources, SchemaEvolution
from penstock.protocols.rapidbyte.declared.hints import Pins, flush_bytes
from penstock.protocols.rapidbyte.wire import messages


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

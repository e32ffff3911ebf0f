"""Holds the pipeline's settings for a component, without its configuration and its permissions.

``Component.settings`` crosses processes as plain data and becomes a :class:`ComponentSettings` in
``rapidbyte.guest.component``, which builds a stage from it. Neighbours: ``stream_context`` and
``sharding`` read it.
"""

from typing import Any

import msgspec

from penstock.config.sections import Resources, SchemaEvolution
from penstock.protocols.rapidbyte.declared.hints import ChosenValue, Pins, flush_bytes
from penstock.protocols.rapidbyte.wire import messages


class ComponentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``place``: the component's role and position in the pipeline (``transform:0``), which owns
    its keys. ``folder``: where relative folders that it may open start; None: the process's.
    ``on_data_error``, ``schema_evolution``: the destination's policies, which every stage gets.
    ``original_names``: columns keep their own names at the destination, as in v4, instead of those
    in tables."""

    place: str = ""
    assume_manifest: dict[str, Any] | None = None
    folder: str | None = None
    resources: Resources = Resources()
    on_data_error: str = "fail"
    schema_evolution: SchemaEvolution = SchemaEvolution(type_change="fail")
    original_names: bool = False

    def limits(self, max_records: int | None = None) -> messages.StreamLimits:
        """Returns the limits of a stream context. ``max_records``: the row cap of a preview."""
        resources = self.resources
        return messages.StreamLimits(
            max_batch_bytes=resources.max_batch_bytes or messages.StreamLimits().max_batch_bytes,
            max_inflight_batches=resources.max_inflight_batches,
            checkpoint_interval_bytes=resources.checkpoint_interval_bytes,
            checkpoint_interval_rows=resources.checkpoint_interval_rows,
            checkpoint_interval_seconds=resources.checkpoint_interval_seconds,
            max_records=msgspec.UNSET if max_records is None else max_records,
        )

    def policies(self) -> messages.Policies:
        """Returns the policies of a stream context."""
        evolution = msgspec.to_builtins(self.schema_evolution)
        return msgspec.convert(
            {"on_data_error": self.on_data_error, "schema_evolution": evolution}, messages.Policies
        )

    def copy_flush_bytes(
        self, memory: int | None = None, *, configured: bool = False
    ) -> ChosenValue[int | None]:
        """Returns the flush size of a COPY (``hints.flush_bytes``). ``memory``: the destination's
        limit, if known. ``configured``: the destination's configuration has its own size, which
        only a pin replaces."""
        resources = self.resources
        limits = [n for n in (memory, resources.max_memory) if n is not None]
        return flush_bytes(
            Pins(copy_flush_bytes=resources.autotune.pin_copy_flush_bytes),
            autotune=resources.autotune.enabled and not configured,
            batch=self.limits().max_batch_bytes,
            memory=min(limits, default=None),
        )

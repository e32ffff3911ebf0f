"""Decides before a run in how many shards a stream is read, and builds the stream context of each.

Input: a source's spec, a configured stream, the pipeline's resources. Not here: the rules
(``hints``). Source: the protocol, section 6.1.
"""

from typing import Any

import msgspec

from penstock.config.sections import Resources
from penstock.model.catalog import ConfiguredStream, ConnectorSpec, Shard, SyncMode
from penstock.protocols.contract import EffectiveLimit, Sharding
from penstock.protocols.rapidbyte.declared import hints as overrides
from penstock.protocols.rapidbyte.declared.hints import Pins
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.wire.messages import StreamContext

_WHY_NOT = "its source is not known to divide it, and would read all of it in each shard"
_CURSOR = "only a full refresh is divided"


def pins_of(resources: Resources) -> Pins:
    """The hints that the pipeline pins."""
    autotune = resources.autotune
    number = resources.parallelism if isinstance(resources.parallelism, int) else None
    return Pins(
        parallelism=autotune.pin_parallelism or number,
        partition_strategy=autotune.pin_source_partition_mode,
        copy_flush_bytes=autotune.pin_copy_flush_bytes,
    )


class RapidbyteShards:
    """Decides the shards of a stream (``ShardRole`` of ``protocols.contract``)."""

    def shards(
        self, spec: ConnectorSpec, stream: ConfiguredStream, resources: Resources, slots: int
    ) -> Sharding:
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, ComponentManifest)
        context = context_of(ComponentSettings(resources=resources), stream, None)
        columns: list[Any] = stream.stream.raw.get("schema") or []
        named = [(str(c.get("name")), str(c.get("data_type"))) for c in columns]
        pins, tuned = pins_of(resources), resources.autotune.enabled
        # Only a full refresh: a cursor of each shard could not be saved.
        full_refresh = stream.sync_mode is SyncMode.full_refresh
        shardable = full_refresh and resources.autotune.pin_parallelism is not None
        shardable |= overrides.shardable(manifest, context, named)
        chosen = overrides.parallelism(pins, autotune=tuned, slots=slots, shardable=shardable)
        count = chosen.value if shardable else 1
        divided = overrides.strategy(pins, autotune=tuned, shards=count)
        flush = overrides.flush_bytes(pins)
        rule = chosen.rule if shardable else f"default: {_WHY_NOT if full_refresh else _CURSOR}"
        hints = (
            EffectiveLimit("effective_parallelism", count, rule),
            EffectiveLimit("partition_strategy", divided.value, divided.rule),
            EffectiveLimit("copy_flush_bytes_override", flush.value, flush.rule),
        )
        return Sharding(count, hints)


def divided(context: StreamContext, shard: Shard | None, resources: Resources) -> StreamContext:
    """The stream context of one shard; ``context`` itself where the stream is not divided."""
    if shard is None:
        return context
    pins = pins_of(resources)
    chosen = overrides.strategy(pins, autotune=resources.autotune.enabled, shards=shard.count)
    return overrides.shards(context, shard.count, chosen.value)[shard.index]

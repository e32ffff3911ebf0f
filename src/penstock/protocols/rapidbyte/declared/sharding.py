"""In how many shards a stream is read, decided before a run, and what each shard is told.

The rules themselves are ``hints``. Source: the protocol, section 6.1.
"""

from typing import Any

import msgspec

from penstock.config.sections import Resources
from penstock.model.catalog import ConfiguredStream, ConnectorSpec, Shard, SyncMode
from penstock.protocols.contract import Held, Sharding
from penstock.protocols.rapidbyte.declared import hints as overrides
from penstock.protocols.rapidbyte.declared.hints import Pins
from penstock.protocols.rapidbyte.declared.manifest import Manifest
from penstock.protocols.rapidbyte.declared.settings import Settings
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.wire.messages import StreamContext

_WHY_NOT = "its source is not known to divide it, and would read all of it in each shard"
_CURSOR = "only a full refresh is divided"


def pins_of(resources: Resources) -> Pins:
    told = resources.autotune
    number = resources.parallelism if isinstance(resources.parallelism, int) else None
    return Pins(
        parallelism=told.pin_parallelism or number,
        partition_strategy=told.pin_source_partition_mode,
        copy_flush_bytes=told.pin_copy_flush_bytes,
    )


class RapidbyteShards:
    """``ShardRole`` of ``protocols.contract``."""

    def shards(
        self, spec: ConnectorSpec, stream: ConfiguredStream, resources: Resources, slots: int
    ) -> Sharding:
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, Manifest)
        context = context_of(Settings(resources=resources), stream, None)
        columns: list[Any] = stream.stream.raw.get("schema") or []
        named = [(str(c.get("name")), str(c.get("data_type"))) for c in columns]
        pins, tuned = pins_of(resources), resources.autotune.enabled
        whole = stream.sync_mode is SyncMode.full_refresh  # a cursor of each shard would be lost
        able = whole and resources.autotune.pin_parallelism is not None
        able |= overrides.shardable(manifest, context, named)
        chosen = overrides.parallelism(pins, autotune=tuned, slots=slots, shardable=able)
        count = chosen.value if able else 1
        divided = overrides.strategy(pins, autotune=tuned, shards=count)
        flush = overrides.flush_bytes(pins)
        rule = chosen.rule if able else f"default: {_WHY_NOT if whole else _CURSOR}"
        hints = (
            Held("effective_parallelism", count, rule),
            Held("partition_strategy", divided.value, divided.rule),
            Held("copy_flush_bytes_override", flush.value, flush.rule),
        )
        return Sharding(count, hints)


def divided(context: StreamContext, shard: Shard | None, resources: Resources) -> StreamContext:
    """What this shard is told."""
    if shard is None:
        return context
    pins = pins_of(resources)
    chosen = overrides.strategy(pins, autotune=resources.autotune.enabled, shards=shard.count)
    return overrides.shards(context, shard.count, chosen.value)[shard.index]

"""Decides before a run in how many shards a stream is read, and builds the stream context of each.

Input: a source's spec, a configured stream, the pipeline's resources. A stream is divided by v4's
own rule, also under autotune; where its source's manifest declares that it divides any full refresh
(``partitioned_read``), the user's pin decides. Not here: the rules (``hints``). Source: the
protocol, section 6.1.
"""

import msgspec

from penstock.config.sections import Resources
from penstock.model.catalog import ConfiguredStream, ConnectorSpec, Shard, SyncMode
from penstock.protocols.contract import EffectiveLimit, Sharding
from penstock.protocols.rapidbyte.declared import hints as overrides
from penstock.protocols.rapidbyte.declared.hints import Pins
from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.declared.settings import ComponentSettings
from penstock.protocols.rapidbyte.declared.stream_context import context_of
from penstock.protocols.rapidbyte.wire.messages import ColumnSchema, StreamContext

_WHY_NOT = "its source is not known to divide it, and would read all of it in each shard"
_UNPINNED = "`resources.parallelism` or its pin sets into how many parts its source divides it"
_CURSOR = "only a full refresh is divided"
_BY_ID = (
    "divided by `id`: rows with a negative `id` are in no part (`resources.parallelism: 1` reads "
    "the stream whole)"
)


def pins_of(resources: Resources) -> Pins:
    """Returns the hints that the pipeline pins."""
    autotune = resources.autotune
    number = resources.parallelism if isinstance(resources.parallelism, int) else None
    return Pins(
        parallelism=autotune.pin_parallelism or number,
        partition_strategy=autotune.pin_source_partition_mode,
    )


class RapidbyteShards:
    """Decides the shards of a stream (``ShardRole`` of ``protocols.contract``)."""

    def shards(
        self, spec: ConnectorSpec, stream: ConfiguredStream, resources: Resources, slots: int
    ) -> Sharding:
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, ComponentManifest)
        settings = ComponentSettings(resources=resources)
        context = context_of(settings, stream, None)
        columns = msgspec.convert(stream.stream.raw.get("schema") or [], list[ColumnSchema])
        key = {path[0] for path in stream.stream.source_defined_primary_key or ()}
        pins, tuned = pins_of(resources), resources.autotune.enabled
        full_refresh = stream.sync_mode is SyncMode.full_refresh  # a shard has no cursor to save
        as_in_v4 = overrides.divided_as_in_v4(manifest, context, columns, key)
        source = None if manifest is None else manifest.roles.source
        declared = full_refresh and source is not None and source.partitioned_read
        if as_in_v4 or (declared and pins.parallelism is not None):
            chosen = overrides.parallelism(pins, autotune=tuned, slots=slots)
            count, rule = chosen.value, chosen.rule
            if as_in_v4 and not declared and count > 1:
                rule = f"{rule}: {_BY_ID}"
        else:
            why_not = _UNPINNED if declared else _WHY_NOT if full_refresh else _CURSOR
            count, rule = 1, f"default: {why_not}"
        divided = overrides.strategy(pins, autotune=tuned, shards=count)
        flush = settings.copy_flush_bytes()
        hints = (
            EffectiveLimit("effective_parallelism", count, rule),
            EffectiveLimit("partition_strategy", divided.value, divided.rule),
            EffectiveLimit("copy_flush_bytes_override", flush.value, flush.rule),
        )
        return Sharding(count, hints)


def divided(context: StreamContext, shard: Shard | None, resources: Resources) -> StreamContext:
    """Returns the stream context of one shard; ``context`` itself where the stream is not
    divided."""
    if shard is None:
        return context
    pins = pins_of(resources)
    chosen = overrides.strategy(pins, autotune=resources.autotune.enabled, shards=shard.count)
    return overrides.shards(context, shard.count, chosen.value)[shard.index]

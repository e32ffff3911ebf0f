"""Decides the hints of a run, which change only its speed: parallelism, partition strategy, flush
size of a COPY.

Precedence: the user's pin, autotune, the default. Pure functions; each value comes with the rule
that decided it, which ``plan`` shows. Also decides whether a source divides a stream among shards.
A pin never decides that: a source that does not divide would read everything once per shard.
Source: the protocol, section 6.1.
"""

from collections.abc import Collection, Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from penstock.protocols.rapidbyte.declared.manifest import ComponentManifest
from penstock.protocols.rapidbyte.wire.messages import ColumnSchema, StreamContext

T = TypeVar("T")
Strategy = Literal["mod", "range"]
LEAST_FLUSH, MOST_FLUSH = 1 << 20, 32 << 20
_WHOLE_NUMBERS = ("Int16", "Int32", "Int64")


class ChosenValue(msgspec.Struct, Generic[T], frozen=True):
    """A hint's value. ``rule``: what decided it, ``pin``, ``autotune`` or ``default``, with the
    reason where a pin is not used."""

    value: T
    rule: str


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """The user's own values: ``resources.autotune.pin_*``; ``parallelism`` also where
    ``resources.parallelism`` is a number."""

    parallelism: int | None = None
    partition_strategy: Strategy | None = None
    copy_flush_bytes: int | None = None


def parallelism(pins: Pins, *, autotune: bool, slots: int) -> ChosenValue[int]:
    """Returns the number of shards for a stream that its source divides. ``slots``: how many tasks
    may run in parallel. ``autotune``: the host may choose."""
    if pins.parallelism is not None:
        return ChosenValue(max(1, pins.parallelism), "pin")
    if autotune and slots > 1:
        return ChosenValue(slots, "autotune")
    return ChosenValue(1, "default")


def strategy(pins: Pins, *, autotune: bool, shards: int) -> ChosenValue[Strategy | None]:
    """Returns how rows are divided among shards; None where there is one shard."""
    if shards < 2:
        pinned = pins.partition_strategy
        unused = "" if pinned is None else f": {pinned} is pinned, and nothing is divided"
        return ChosenValue(None, f"default{unused}")
    if pins.partition_strategy is not None:
        return ChosenValue(pins.partition_strategy, "pin")
    return ChosenValue("mod", "autotune" if autotune else "default")


def flush_bytes(
    pins: Pins, *, autotune: bool, batch: int, memory: int | None = None
) -> ChosenValue[int | None]:
    """Returns the bytes after which a COPY is flushed, within v4's bounds; None: the connector's
    default. ``batch``: bytes of the largest batch; ``memory``: of the destination, which holds
    unflushed bytes. Autotune takes an eighth of ``batch``, and at most a sixteenth of
    ``memory``."""
    if pins.copy_flush_bytes is not None:
        return ChosenValue(_flush(pins.copy_flush_bytes), "pin")
    if not autotune:
        return ChosenValue(None, "default")
    share = batch // 8 if memory is None else min(batch // 8, memory // 16)
    return ChosenValue(_flush(share), "autotune")


def _flush(wanted: int) -> int:
    return min(max(wanted, LEAST_FLUSH), MOST_FLUSH)


def divided_as_in_v4(
    manifest: ComponentManifest | None,
    context: StreamContext,
    columns: Sequence[ColumnSchema],
    key: Collection[str],
) -> bool:
    """Returns whether v4's own rule divides a stream: its Postgres source divides a full refresh of
    a table with an integer ``id``, and reads any other table whole in every shard. No shard has the
    rows with a null ``id``, so it must be non-null by the catalog or in the primary ``key``; nor
    those with a negative ``id``, which no catalog shows. ``columns``: as discovered."""
    postgres = manifest is not None and manifest.is_v4_postgres
    replaces = context.write_mode is not None and context.write_mode.mode == "replace"
    divisible = any(
        c.name == "id" and c.data_type in _WHOLE_NUMBERS and (not c.nullable or c.name in key)
        for c in columns
    )
    return postgres and context.sync_mode == "full_refresh" and not replaces and divisible


def shards(context: StreamContext, count: int, chosen: Strategy | None) -> list[StreamContext]:
    """Returns the stream contexts of ``count`` shards, in order; below 2 shards, the single context
    of the whole stream."""
    if count < 2:
        return [msgspec.structs.replace(context, effective_parallelism=1)]
    return [
        msgspec.structs.replace(
            context,
            source_stream_name=context.stream_name,
            partition_count=count,
            partition_index=index,
            partition_strategy=chosen or "mod",
            effective_parallelism=count,
        )
        for index in range(count)
    ]

"""The modes that earlier runs of a pipeline synced its streams with.

Where the pipeline says nothing of a stream's modes they stay what they were: a table that was
appended to is not merged into from one day to the next because a default or a catalog changed.
Kept among the pipeline's names, which only grow: ``modes:STREAM`` -> {number: JSON}, the highest
number holds. Not here: what the modes of a new stream are (``protocols/*/stream_config.py``).
"""

from collections.abc import Mapping

import msgspec

from penstock.config.pipeline import StreamSettings
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.protocols.contract import StreamWish

Names = Mapping[str, Mapping[str, str]]


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream was synced."""

    sync_mode: SyncMode
    destination_sync_mode: DestinationSyncMode
    replaces: bool = False
    primary_key: tuple[FieldPath, ...] = ()

    def __str__(self) -> str:
        return f"{self.sync_mode.value} + {self.destination_sync_mode.value}"


def columns_key(stream: StreamId) -> str:
    """Where the store keeps the column names of a stream."""
    return f"columns:{stream.key}"


def used(names: Names, stream: StreamId) -> Used | None:
    """None: no run wrote it down."""
    found = names.get(_key(stream), {})
    newest = max(map(int, found), default=None)
    return None if newest is None else msgspec.json.decode(found[str(newest)], type=Used)


def grown(names: Names, configured: ConfiguredStream) -> dict[str, dict[str, str]]:
    """What is to be added to ``names``; nothing where they say it already."""
    now = Used(
        sync_mode=configured.sync_mode,
        destination_sync_mode=configured.destination_sync_mode,
        replaces=configured.replaces,
        primary_key=configured.primary_key,
    )
    if now == used(names, configured.id):
        return {}
    number = 1 + max(map(int, names.get(_key(configured.id), {})), default=0)
    return {_key(configured.id): {str(number): msgspec.json.encode(now).decode()}}


def as_before(wish: StreamWish, stream: Stream, names: Names) -> StreamWish:
    """The wish, with the modes (and the key that they need) of earlier runs where it leaves them
    open."""
    had = used(names, stream.id)
    if had is None:
        return msgspec.structs.replace(wish, unrecorded=columns_key(stream.id) in names)
    if wish.destination_sync_mode is not None or wish.sync_mode not in (None, had.sync_mode):
        return wish
    key = wish.primary_key
    if key is None and stream.source_defined_primary_key is None:
        key = had.primary_key or None
    why = "its table has been written so until now"
    if had.destination_sync_mode is DestinationSyncMode.append:
        why = "its table has been appended to until now; mode: upsert keeps one row per key"
    return msgspec.structs.replace(
        wish,
        sync_mode=had.sync_mode,
        destination_sync_mode=had.destination_sync_mode,
        replaces=had.replaces,
        primary_key=key,
        said=why,
    )


def overwritten(settings: StreamSettings | None, stream: StreamId, names: Names) -> bool:
    """Whether the stream's rows will replace its table, as far as is known before it comes.
    ``settings`` None: it is not wanted."""
    if settings is None:
        return False
    mode, had = settings.destination_sync_mode, used(names, stream)
    if mode is None and had is not None:
        mode = had.destination_sync_mode
    return mode is DestinationSyncMode.overwrite


def _key(stream: StreamId) -> str:
    return f"modes:{stream.key}"

"""The modes that earlier runs of a pipeline synced its streams with.

Where the pipeline says nothing of a stream's modes they stay what they were: a table that was
appended to is not merged into from one day to the next because a default or a catalog changed.
The store keeps them (``state.remembered``). Not here: what the modes of a new stream are
(``protocols/*/stream_config.py``).
"""

import msgspec

from penstock.config.pipeline import StreamSettings
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId
from penstock.protocols.contract import StreamWish
from penstock.state.remembered import Remembered, UsedModes


def modes_of(configured: ConfiguredStream) -> UsedModes:
    """What the store is to remember."""
    return UsedModes(
        sync_mode=configured.sync_mode,
        destination_sync_mode=configured.destination_sync_mode,
        replaces=configured.replaces,
        primary_key=configured.primary_key,
    )


def as_before(wish: StreamWish, stream: Stream, earlier: Remembered) -> StreamWish:
    """The wish, with the modes (and the key that they need) of earlier runs where it leaves them
    open."""
    had = earlier.modes.get(stream.id)
    if had is None:
        return msgspec.structs.replace(wish, unrecorded=stream.id in earlier.columns)
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


def overwritten(settings: StreamSettings | None, stream: StreamId, earlier: Remembered) -> bool:
    """Whether the stream's rows will replace its table, as far as is known before it comes.
    ``settings`` None: it is not wanted."""
    if settings is None:
        return False
    mode, had = settings.destination_sync_mode, earlier.modes.get(stream)
    if mode is None and had is not None:
        mode = had.destination_sync_mode
    return mode is DestinationSyncMode.overwrite

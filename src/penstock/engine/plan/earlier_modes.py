"""Keeps the sync modes with which earlier runs of a pipeline synced its streams.

Where the pipeline file sets no mode for a stream, the stream keeps its mode: a table that was
appended to is not suddenly merged into because a default or a catalog changed. The store keeps the
modes (``store.remembered``). Not here: the modes of a new stream
(``protocols/*/stream_config.py``).
"""

import msgspec

from penstock.config.pipeline import StreamSettings
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Remembered, UsedModes


def modes_of(configured: ConfiguredStream) -> UsedModes:
    """Returns the modes of a configured stream, for the store."""
    return UsedModes(
        sync_mode=configured.sync_mode,
        destination_sync_mode=configured.destination_sync_mode,
        replaces=configured.replaces,
        primary_key=configured.primary_key,
    )


def as_before(overrides: StreamOverrides, stream: Stream, earlier: Remembered) -> StreamOverrides:
    """Returns the user's overrides, completed by the modes of earlier runs (and the key that these
    need) where the user set none."""
    had = earlier.modes.get(stream.id)
    if had is None:
        return msgspec.structs.replace(overrides, unrecorded=stream.id in earlier.columns)
    if overrides.destination_sync_mode is not None or overrides.sync_mode not in (
        None,
        had.sync_mode,
    ):
        return overrides
    key = overrides.primary_key
    if key is None and stream.source_defined_primary_key is None:
        key = had.primary_key or None
    why = "its table has been written so until now"
    if had.destination_sync_mode is DestinationSyncMode.append:
        why = "its table has been appended to until now; mode: upsert keeps one row per key"
    return msgspec.structs.replace(
        overrides,
        sync_mode=had.sync_mode,
        destination_sync_mode=had.destination_sync_mode,
        replaces=had.replaces,
        primary_key=key,
        said=why,
    )


def overwritten(settings: StreamSettings | None, stream: StreamId, earlier: Remembered) -> bool:
    """Whether the stream's rows will replace its table, as far as this can be known before its
    source sends it. ``settings`` None: the stream is not selected."""
    if settings is None:
        return False
    mode, had = settings.destination_sync_mode, earlier.modes.get(stream)
    if mode is None and had is not None:
        mode = had.destination_sync_mode
    return mode is DestinationSyncMode.overwrite

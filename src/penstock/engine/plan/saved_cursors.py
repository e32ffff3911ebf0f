"""Keeps a stream's cursor as long as its saved state uses it, and refuses a change (L1).

A source that gets a state of another cursor skips rows, or fails in every run. The cursor that a
stream was read with is stored when it is read (``engine.sync.unread``). Pure. Not here: which
cursors a protocol allows (``protocols/*/stream_config.py``), keys. Neighbours:
``engine.plan.stream_plan`` plans the stream, ``engine.plan.prepare`` gathers what is saved.
"""

import shlex
from collections.abc import Sequence

import msgspec

from penstock.errors import ConfigError
from penstock.model.catalog import ConfiguredStream, FieldPath, Stream, StreamId, SyncMode
from penstock.model.state import StoredState
from penstock.protocols.contract import SourceRole, StateRole
from penstock.protocols.reading import StreamOverrides
from penstock.store.remembered import Remembered


class SavedCursor(msgspec.Struct, frozen=True):
    """The cursor that a stream's saved state uses. ``reset``: the command that deletes that
    state."""

    path: FieldPath
    reset: str


def saved_cursors(
    role: StateRole, states: Sequence[StoredState], earlier: Remembered, pipeline: str
) -> dict[StreamId, SavedCursor]:
    """Returns the cursors of the streams in ``states``, the states that the source gets. A stream
    without a state takes the current cursor."""
    found: dict[StreamId, SavedCursor] = {}
    for stream, path in earlier.cursors.items():
        if path and role.without(states, (stream,)) != states:
            command = ["penstock", "state", "reset", pipeline]
            if role.splits(states, (stream,)):
                command += ["--stream", str(stream)]
            found[stream] = SavedCursor(path, shlex.join(command))
    return found


def keep_cursor(
    stream: Stream, overrides: StreamOverrides, rules: SourceRole, saved: SavedCursor
) -> StreamOverrides:
    """Returns the overrides with the saved cursor, where the user has chosen none and the source's
    own has changed. Raises ``ConfigError`` where the user chose another, and where the stream no
    longer has the saved one."""
    try:
        today = rules.configure(stream, overrides)
    except ConfigError:
        if overrides.cursor_field:
            raise
        today = None
    if today is not None and not _goes_on(today):
        return overrides
    cursor = () if today is None else today.cursor_field
    if cursor == saved.path:
        return overrides
    if overrides.cursor_field:
        raise _changed(stream, saved, cursor, "")
    kept = msgspec.structs.replace(overrides, cursor_field=saved.path)
    try:
        rules.configure(stream, kept)
    except ConfigError:
        gone = f"; {_text(saved.path)} is no longer a cursor of the stream"
        raise _changed(stream, saved, cursor, gone) from None
    return kept


def kept_cursor(configured: ConfiguredStream) -> list[str]:
    """Returns a note where a stream without a cursor chosen by the user continues with its saved
    one."""
    default = configured.stream.default_cursor_field
    if not configured.cursor_field or configured.cursor_field == default:
        return []
    now = f"the source's default is {_text(default)} now" if default else "the source names none"
    return [
        f"stream {configured.id}: its cursor stays {_text(configured.cursor_field)}, which its "
        f"saved state uses; {now}"
    ]


def ignored_cursor(configured: ConfiguredStream, wanted: FieldPath | None) -> list[str]:
    """Returns a note where the source defines the stream's cursor, and the user's is another."""
    stream, cursor = configured.stream, configured.cursor_field
    incremental = configured.sync_mode is SyncMode.incremental
    if not (wanted and incremental and stream.source_defined_cursor and wanted != cursor):
        return []
    its = f", {_text(cursor)}" if cursor else ""
    return [
        f"stream {configured.id}: cursor_field {_text(wanted)} is ignored: the source defines the "
        f"stream's cursor{its}"
    ]


def _goes_on(configured: ConfiguredStream) -> bool:
    """Whether the stream continues from its state by a cursor that the source does not manage by
    itself."""
    return (
        configured.sync_mode is SyncMode.incremental
        and not configured.fills_generation
        and not configured.stream.source_defined_cursor
    )


def _changed(stream: Stream, saved: SavedCursor, cursor: FieldPath, why: str) -> ConfigError:
    old, new = _text(saved.path), _text(cursor) or "none"
    back = "" if why else f" put the cursor back (cursor_field: {old}), or"
    return ConfigError(
        f"stream {stream.id}: its cursor has changed from {old} to {new}{why}: its saved state "
        f"uses {old}, and with another cursor the source would skip rows",
        code="config.cursor_changed",
        hint=f"nothing was changed;{back} have the stream read from the start: `{saved.reset}`",
        stream=str(stream.id),
    )


def _text(path: FieldPath | None) -> str:
    return ".".join(path or ())

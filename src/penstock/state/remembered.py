"""Says what a pipeline remembers of its streams, and how the store keeps it: in rows (kind, {text:
text}) that only grow.

Pure: structs and their rows. What may change of a row is decided by ``rules.new_names``; ``sql``
and ``memory`` read and write the rows. Not here: schemas, states, what the facts are used for
(``engine.plan``). Where a fact follows another (modes, passed over), the row's keys are numbers and
the highest holds.
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId, SyncMode

Rows = Mapping[str, Mapping[str, str]]

_TABLES, _TARGETS, _RECORDS = "tables", "targets", "records"
_COLUMNS, _ANSWER, _MODES, _CALLED = "columns:", "query:", "modes:", "called:"
_PASSED, _VERSIONS, _VISIBLE, _REFRESHED = "passed:", "versions:", "visible:", "refreshed:"
_OF_STREAM = (_COLUMNS, _ANSWER, _MODES, _CALLED, _PASSED, _VERSIONS, _VISIBLE, _REFRESHED)
_OVER, _READ, _PUBLISHED = "over", "read", "published"


class UsedModes(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream was synced last."""

    sync_mode: SyncMode
    destination_sync_mode: DestinationSyncMode
    replaces: bool = False
    primary_key: tuple[FieldPath, ...] = ()


class TableNames(msgspec.Struct, frozen=True, kw_only=True):
    """By ``StreamId.key``. ``tables``: the name of a stream's table (``model.names.clean_tables``).
    ``targets``: the key of what it is called at the destination, where that is not its own name.
    ``records``: what its records call it, where its table has that name."""

    tables: dict[str, str] = {}
    targets: dict[str, str] = {}
    records: dict[str, str] = {}


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of streams, or what is to be added to it. ``columns``: original property ->
    column. ``answer_columns``: the same of what queries over the whole stream make of it.
    ``state_names``: what the source's states call the stream. ``passed_over``: streams that their
    source sent though nobody wanted them: its state went on without their rows.
    ``versions``: version -> its generation. ``visible``: generation that became visible -> its
    version; the newest is what a table shows. ``refreshes``: generations of a host that feeds us
    that became visible."""

    tables: TableNames = TableNames()
    columns: dict[StreamId, dict[str, str]] = {}
    answer_columns: dict[StreamId, dict[str, str]] = {}
    modes: dict[StreamId, UsedModes] = {}
    state_names: dict[StreamId, frozenset[str]] = {}
    passed_over: frozenset[StreamId] = frozenset()
    versions: dict[StreamId, dict[int, int]] = {}
    visible: dict[StreamId, dict[int, int]] = {}
    refreshes: dict[StreamId, frozenset[int]] = {}

    def newest_visible(self, stream: StreamId) -> int:
        """The newest generation of it that a table shows; 0: none."""
        return max(self.visible.get(stream, {}), default=0)


def kinds(streams: Iterable[StreamId]) -> list[str]:
    """The rows that hold what is known of these streams."""
    of_streams = (f"{kind}{stream.key}" for stream in streams for kind in _OF_STREAM)
    return [_TABLES, _TARGETS, _RECORDS, *of_streams]


def remembered(rows: Rows) -> Remembered:
    of: dict[str, dict[StreamId, Mapping[str, str]]] = {kind: {} for kind in _OF_STREAM}
    for name, row in rows.items():
        kind, colon, key = name.partition(":")
        if kind + colon in of:
            of[kind + colon][_stream(key)] = row
    return Remembered(
        tables=TableNames(
            tables=dict(rows.get(_TABLES, {})),
            targets=dict(rows.get(_TARGETS, {})),
            records=dict(rows.get(_RECORDS, {})),
        ),
        columns={s: dict(row) for s, row in of[_COLUMNS].items()},
        answer_columns={s: dict(row) for s, row in of[_ANSWER].items()},
        modes={s: used for s, row in of[_MODES].items() if (used := _modes(row)) is not None},
        state_names={s: frozenset(row) for s, row in of[_CALLED].items()},
        passed_over=frozenset(s for s, row in of[_PASSED].items() if _newest(row) == _OVER),
        versions={s: _numbers(row) for s, row in of[_VERSIONS].items()},
        visible={s: _numbers(row) for s, row in of[_VISIBLE].items()},
        refreshes={s: frozenset(map(int, row)) for s, row in of[_REFRESHED].items()},
    )


def streams_of(more: Remembered, taken_up: Iterable[StreamId]) -> set[StreamId]:
    """Of which streams it says something."""
    maps = (more.columns, more.answer_columns, more.modes, more.state_names, more.versions)
    named = {s for one in (*maps, more.visible, more.refreshes) for s in one}
    return named | more.passed_over | set(taken_up)


def added(more: Remembered, known: Rows, taken_up: Iterable[StreamId]) -> dict[str, dict[str, str]]:
    """The rows to add for ``more``, and for streams that are passed over no longer. ``known``: the
    rows of :func:`kinds` of its streams."""
    rows: dict[str, dict[str, str]] = {
        _TABLES: more.tables.tables,
        _TARGETS: more.tables.targets,
        _RECORDS: more.tables.records,
        **{_COLUMNS + s.key: columns for s, columns in more.columns.items()},
        **{_ANSWER + s.key: columns for s, columns in more.answer_columns.items()},
        **{_CALLED + s.key: {n: n for n in names} for s, names in more.state_names.items()},
        **{_VERSIONS + s.key: _texts(numbers) for s, numbers in more.versions.items()},
        **{_VISIBLE + s.key: _texts(numbers) for s, numbers in more.visible.items()},
        **{
            _REFRESHED + s.key: {str(n): _PUBLISHED for n in numbers}
            for s, numbers in more.refreshes.items()
        },
    }
    for stream, modes in more.modes.items():
        kind = _MODES + stream.key
        if modes != _modes(known.get(kind, {})):
            rows[kind] = _next(known.get(kind, {}), msgspec.json.encode(modes).decode())
    for stream in more.passed_over:
        kind = _PASSED + stream.key
        if _newest(known.get(kind, {})) != _OVER:
            rows[kind] = _next(known.get(kind, {}), _OVER)
    for stream in taken_up:
        kind = _PASSED + stream.key
        if _newest(known.get(kind, {})) == _OVER:
            rows[kind] = _next(known[kind], _READ)
    return {kind: row for kind, row in rows.items() if row}


def _stream(key: str) -> StreamId:
    return StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))


def _newest(row: Mapping[str, str]) -> str | None:
    return row[str(max(map(int, row)))] if row else None


def _next(row: Mapping[str, str], text: str) -> dict[str, str]:
    return {str(1 + max(map(int, row), default=0)): text}


def _modes(row: Mapping[str, str]) -> UsedModes | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=UsedModes)


def _numbers(row: Mapping[str, str]) -> dict[int, int]:
    return {int(key): int(value) for key, value in row.items()}


def _texts(numbers: Mapping[int, int]) -> dict[str, str]:
    return {str(key): str(value) for key, value in numbers.items()}

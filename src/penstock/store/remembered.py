"""Converts what a pipeline stores about its streams (names, modes, versions) to and from rows of
the store: kind -> {text: text}, which only grow.

A value that later ones replace (modes, unread, cursors, refreshes) has a row with numbers as keys;
the row with the highest number counts. Pure functions and structs. Not here: which rows may be
added (``rules.new_names``), reading and writing them (``sql``, ``memory``), schemas, states, what
the values are used for (``engine.plan``)."""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.model.catalog import DestinationSyncMode, FieldPath, StreamId, SyncMode
from penstock.model.types import DataType

Rows = Mapping[str, Mapping[str, str]]

_TABLES, _TARGETS, _RECORDS = "tables", "targets", "records"
_PACKAGES, _RESULTS, _LOG, _ENV = "packages", "results", "log", "env_file"
_MODEL, _PLACE, _TRIED, _FILE = "model_name", "place", "tried", "file"
_COLUMNS, _ANSWER, _MODES, _CALLED = "columns:", "query:", "modes:", "called:"
_PASSED, _VERSIONS, _VISIBLE, _REFRESHED = "passed:", "versions:", "visible:", "refreshed:"
_CURSOR, _REFRESH, _TYPES, _NESTED = "cursor:", "refresh:", "types:", "nested:"
_OF_STREAM = (
    _COLUMNS, _ANSWER, _MODES, _CALLED, _PASSED, _VERSIONS, _VISIBLE, _REFRESHED, _CURSOR, _REFRESH,
    _TYPES, _NESTED,
)  # fmt: skip
_OVER, _UNREAD, _READ, _PUBLISHED, _GIVEN = "over", "unread", "read", "published", "given"


class UsedModes(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the modes under which a stream was last synced. ``replaces``: its generation replaces
    the table's rows, also under a mode other than overwrite. ``newest``: the rule by which the
    newest row of a key was found (``engine.plan.earlier_modes.NEWEST``). ``history``: its table
    keeps every version of a key."""

    sync_mode: SyncMode
    destination_sync_mode: DestinationSyncMode
    replaces: bool = False
    primary_key: tuple[FieldPath, ...] = ()
    newest: int = 0
    history: bool = False


class LogPlace(msgspec.Struct, frozen=True):
    """Identifies the log that holds a pipeline's sealed rows. ``id``: of the log's folder, drawn
    once; ``holder``: user@host of the run that found it there; ``home``, ``path``: that run's home,
    and the log's folder; ``after``: the last epoch before that run, whose rows are in another
    log."""

    id: str
    holder: str
    home: str
    path: str
    after: int = 0


class StoredPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the place of a pipeline: where its relative paths started in the last run whose tables
    had the ledger's last numbers. ``folder``: an absolute path; ``id``: its identity in the
    pipeline file. ``lake``: the absolute path of its tables then; ``written``: the path as written
    in the pipeline. ``kept``: the file means another folder, and the tables stay in ``lake``."""

    folder: str
    id: str | None = None
    lake: str | None = None
    written: str | None = None
    kept: bool = False


class UsedFile(msgspec.Struct, frozen=True):
    """Holds the pipeline file of a pipeline's last run. ``path``: absolute; ``options``: of the
    command line with which it is read (``config.pipeline.Pipeline.read_with``, ``--name``)."""

    path: str
    options: tuple[str, ...] = ()


class Refresh(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a refresh of a stream (``run --recreate``). ``run``, ``at``: the run that requested
    it, and when (ISO 8601, UTC). ``after``: the last epoch before it. ``until``: the last epoch at
    its end, when its generation was written to the ledger or the user cancelled it (``cancelled``);
    None: it is pending. ``again``: if it replaced an unpublished refresh, the last epoch of that
    one, whose rows do not belong to it; ``after`` is then that one's. ``cursor``: the cursor with
    which it is read (empty: the source's; None: not read yet)."""

    run: str
    at: str
    after: int
    until: int | None = None
    cancelled: bool = False
    again: int = 0
    cursor: FieldPath | None = None

    @property
    def pending(self) -> bool:
        return self.until is None

    def covers(self, epoch: int) -> bool:
        """Returns whether a state of this epoch may claim rows of the stream that its table
        lacks."""
        return self.after < epoch and (self.until is None or epoch <= self.until)

    def has(self, epoch: int) -> bool:
        """Returns whether rows of a refresh that were read in this epoch belong to this refresh,
        and it is pending."""
        return self.pending and epoch > max(self.after, self.again)

    def is_stale(self, epoch: int) -> bool:
        """Returns whether what was read in this epoch belongs to a refresh that was given up."""
        return self.covers(epoch) and (self.cancelled or epoch <= self.again)

    def read_by(self, cursor: FieldPath, epoch: int) -> "Refresh":
        """Returns the refresh for reading by this cursor: from its start if another cursor read it
        before. ``epoch``: the last one that was begun."""
        other = self.cursor is not None and self.cursor != cursor
        again = epoch if other else self.again
        return msgspec.structs.replace(self, cursor=cursor, again=again)

    def ended(self, epoch: int, *, cancelled: bool = False) -> "Refresh":
        """Returns the refresh as ended. ``epoch``: the last one that was begun."""
        return msgspec.structs.replace(self, until=epoch, cancelled=cancelled)


def asked(run: str, at: str, epoch: int, before: Refresh | None) -> Refresh:
    """Returns the refresh of a stream that a run requests. ``epoch``: the last one that was begun.
    ``before``: the newest refresh of the stream so far."""
    unpublished = before is not None and (before.cancelled or before.pending)
    if before is not None and unpublished and before.until in (None, epoch):
        return Refresh(run=run, at=at, after=before.after, again=epoch)
    return Refresh(run=run, at=at, after=epoch)


class TableNames(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the names of streams' tables, all by ``StreamId.key``. ``tables``: the name of the
    table (``model.names.clean_tables``). ``targets``: the key of the stream that the destination
    gets, if it differs from the source's. ``records``: the stream's name in its records, if the
    table is named after that."""

    tables: dict[str, str] = {}
    targets: dict[str, str] = {}
    records: dict[str, str] = {}


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is stored for streams, or what is to be added. ``columns``: original property ->
    column. ``answer_columns``: the same for the result of queries over the whole stream.
    ``state_names``: the stream's names in the source's states. ``unread``: streams that the last
    run did not read, so that the saved state may have advanced without their rows; each with the
    share of the state that its own last run left (``StateRole.own``, or a digest of the whole
    state, ``engine.plan.unread.undivided``; None: it has none). ``passed_over``: those of them for
    which the source sent rows anyway. ``owned``: streams that were unread once, or whose state a
    user brought: the saved state is theirs. ``cursors``: the cursor with which a stream's state was
    made (empty: unknown). ``versions``: version (ACTIVATE_VERSION) -> its generation. ``visible``:
    generation whose rows the table shows or showed -> its version; the newest counts.
    ``refreshes``: generation numbers of the host of ``penstock serve`` whose rows became visible.
    ``packages``: connector (its protocol and name) -> its package in the index; for no stream.
    ``results``: destination connectors (by reference) that have answered the end of a stream with a
    result; for no stream. ``refresh``: the newest refresh of the stream that a user requested.
    ``types``: the types of columns whose files do not define them, by original name, as earlier
    runs found them. ``log``: the log of the pipeline's last run. ``nested``: the names of fields
    inside objects, by the JSON of their path (``engine.plan.nested_names``). ``env_names``:
    variables from the ``.env`` next to the pipeline file that a run has noted; for no stream.
    ``model_name``: the table's, for an unnamed query at a destination connector
    (``engine.plan.model_target``); for no stream. ``place``: where the pipeline's relative paths
    start; None: no run has stored it. ``tried``: file of ids -> the ids of rejects that were tried
    again (``engine.log.retries``); for no stream. ``file``: the pipeline file of the last run;
    None: it had none. ``keys``: every primary key by which rows of a stream were merged; derived
    from the modes."""

    tables: TableNames = TableNames()
    columns: dict[StreamId, dict[str, str]] = {}
    answer_columns: dict[StreamId, dict[str, str]] = {}
    modes: dict[StreamId, UsedModes] = {}
    state_names: dict[StreamId, frozenset[str]] = {}
    unread: dict[StreamId, str | None] = {}
    passed_over: frozenset[StreamId] = frozenset()
    owned: frozenset[StreamId] = frozenset()
    cursors: dict[StreamId, FieldPath] = {}
    versions: dict[StreamId, dict[int, int]] = {}
    visible: dict[StreamId, dict[int, int]] = {}
    refreshes: dict[StreamId, frozenset[int]] = {}
    packages: dict[str, str] = {}
    results: frozenset[str] = frozenset()
    refresh: dict[StreamId, Refresh] = {}
    types: dict[StreamId, dict[str, DataType]] = {}
    log: LogPlace | None = None
    env_names: frozenset[str] = frozenset()
    model_name: str | None = None
    place: StoredPlace | None = None
    nested: dict[StreamId, dict[str, str]] = {}
    tried: dict[str, str] = {}
    file: UsedFile | None = None
    keys: dict[StreamId, frozenset[tuple[FieldPath, ...]]] = {}

    @property
    def pending_refreshes(self) -> dict[StreamId, Refresh]:
        """The refreshes that are not ended."""
        return {stream: refresh for stream, refresh in self.refresh.items() if refresh.pending}

    def newest_visible(self, stream: StreamId) -> int:
        """Returns the newest generation of the stream that its table shows; 0: none."""
        return max(self.visible.get(stream, {}), default=0)


def kinds(streams: Iterable[StreamId]) -> list[str]:
    """Returns the kinds of the rows of these streams, and of those that belong to no stream."""
    of_streams = (f"{kind}{stream.key}" for stream in streams for kind in _OF_STREAM)
    return [
        _TABLES, _TARGETS, _RECORDS, _PACKAGES, _RESULTS, _LOG, _ENV, _MODEL, _PLACE, _TRIED, _FILE,
        *of_streams,
    ]  # fmt: skip


def remembered(rows: Rows) -> Remembered:
    """Reads stored rows; kinds that are not given stay empty."""
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
        unread={s: _own(row) for s, row in of[_PASSED].items() if _word(row) in (_OVER, _UNREAD)},
        passed_over=frozenset(s for s, row in of[_PASSED].items() if _word(row) == _OVER),
        owned=frozenset(s for s, row in of[_PASSED].items() if _word(row) == _READ),
        cursors={s: _path(row) for s, row in of[_CURSOR].items()},
        versions={s: _numbers(row) for s, row in of[_VERSIONS].items()},
        visible={s: _numbers(row) for s, row in of[_VISIBLE].items()},
        refreshes={s: frozenset(map(int, row)) for s, row in of[_REFRESHED].items()},
        packages=dict(rows.get(_PACKAGES, {})),
        results=frozenset(rows.get(_RESULTS, {})),
        env_names=frozenset(rows.get(_ENV, {})),
        model_name=next(iter(rows.get(_MODEL, {}).values()), None),
        refresh={s: found for s, row in of[_REFRESH].items() if (found := _refresh(row))},
        types={s: _types(row) for s, row in of[_TYPES].items()},
        log=_log(rows.get(_LOG, {})),
        place=_place(rows.get(_PLACE, {})),
        nested={s: dict(row) for s, row in of[_NESTED].items()},
        tried=dict(rows.get(_TRIED, {})),
        file=_file(rows.get(_FILE, {})),
        keys={s: found for s, row in of[_MODES].items() if (found := _keys(row))},
    )


def streams_of(more: Remembered, taken_up: Iterable[StreamId]) -> set[StreamId]:
    """Returns the streams whose rows :func:`added` may change."""
    maps = (more.columns, more.answer_columns, more.modes, more.state_names, more.versions)
    newest = (more.visible, more.refreshes, more.unread, more.cursors, more.refresh, more.types)
    named = {s for one in (*maps, *newest, more.nested) for s in one}
    return named | more.passed_over | set(taken_up)


def added(more: Remembered, known: Rows, taken_up: Iterable[StreamId]) -> dict[str, dict[str, str]]:
    """Makes the rows to add for ``more``, and for the streams ``taken_up``, which stop being
    unread: the saved state now holds their share. A stream that is unread already keeps its own
    share. ``known``: the stored rows of :func:`kinds` of these streams."""
    rows: dict[str, dict[str, str]] = {
        _TABLES: more.tables.tables,
        _TARGETS: more.tables.targets,
        _RECORDS: more.tables.records,
        _PACKAGES: more.packages,
        _RESULTS: dict.fromkeys(more.results, _GIVEN),
        _ENV: dict.fromkeys(more.env_names, _GIVEN),
        _TRIED: more.tried,
        _MODEL: {} if more.model_name is None else {_GIVEN: more.model_name},
        **{_COLUMNS + s.key: columns for s, columns in more.columns.items()},
        **{_NESTED + s.key: names for s, names in more.nested.items()},
        **{_ANSWER + s.key: columns for s, columns in more.answer_columns.items()},
        **{_CALLED + s.key: {n: n for n in names} for s, names in more.state_names.items()},
        **{_VERSIONS + s.key: _texts(numbers) for s, numbers in more.versions.items()},
        **{_VISIBLE + s.key: _texts(numbers) for s, numbers in more.visible.items()},
        **{
            _REFRESHED + s.key: {str(n): _PUBLISHED for n in numbers}
            for s, numbers in more.refreshes.items()
        },
    }
    replaced = {_MODES + s.key: _json(modes) for s, modes in more.modes.items()}
    replaced |= {_CURSOR + s.key: _json(path) for s, path in more.cursors.items()}
    replaced |= {_REFRESH + s.key: _json(refresh) for s, refresh in more.refresh.items()}
    replaced |= {_TYPES + s.key: _json(types) for s, types in more.types.items()}
    if more.log is not None:
        replaced[_LOG] = _json(more.log)
    if more.place is not None:
        replaced[_PLACE] = _json(more.place)
    if more.file is not None:
        replaced[_FILE] = _json(more.file)
    unread = {s: known.get(_PASSED + s.key, {}) for s in (*more.unread, *more.passed_over)}
    for stream, row in unread.items():
        own = _own(row) if _word(row) in (_OVER, _UNREAD) else more.unread.get(stream)
        over = stream in more.passed_over or _word(row) == _OVER
        text = "" if own is None else f":{own}"
        replaced[_PASSED + stream.key] = f"{_OVER if over else _UNREAD}{text}"
    replaced |= {_PASSED + s.key: _READ for s in taken_up}
    for kind, text in replaced.items():
        row = known.get(kind, {})
        if _newest(row) != text and not (kind.startswith(_MODES) and _same_modes(row, text)):
            rows[kind] = _next(row, text)
    return {kind: row for kind, row in rows.items() if row}


def refresh_kinds(streams: Iterable[StreamId]) -> list[str]:
    """Returns the kinds of the rows that :func:`refreshes_ended` reads and changes."""
    return [kind + stream.key for stream in streams for kind in (_REFRESH, _CURSOR)]


def refreshes_ended(known: Rows, epochs: Mapping[StreamId, int], last: int) -> Remembered:
    """Returns what to add when generations of these streams are written to the ledger: the pending
    refreshes that they end, and their cursors. ``known``: the rows of :func:`refresh_kinds`.
    ``epochs``: the newest epoch of each stream's generation; ``last``: the last epoch that was
    begun."""
    pending = remembered(known).pending_refreshes
    ended = {
        stream: pending[stream].ended(last)
        for stream, epoch in epochs.items()
        if stream in pending and pending[stream].has(epoch)
    }
    cursors = {stream: refresh.cursor for stream, refresh in ended.items() if refresh.cursor}
    return Remembered(refresh=ended, cursors=cursors)


def _stream(key: str) -> StreamId:
    return StreamId(*msgspec.json.decode(key, type=tuple[str | None, str]))


def _newest(row: Mapping[str, str]) -> str | None:
    return row[str(max(map(int, row)))] if row else None


def _next(row: Mapping[str, str], text: str) -> dict[str, str]:
    return {str(1 + max(map(int, row), default=0)): text}


def _word(row: Mapping[str, str]) -> str | None:
    newest = _newest(row)
    return None if newest is None else newest.partition(":")[0]


def _own(row: Mapping[str, str]) -> str | None:
    _, colon, text = (_newest(row) or "").partition(":")
    return text if colon else None


def _path(row: Mapping[str, str]) -> FieldPath:
    return msgspec.json.decode(_newest(row) or "[]", type=FieldPath)


def _refresh(row: Mapping[str, str]) -> Refresh | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=Refresh)


def _log(row: Mapping[str, str]) -> LogPlace | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=LogPlace)


def _place(row: Mapping[str, str]) -> StoredPlace | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=StoredPlace)


def _types(row: Mapping[str, str]) -> dict[str, DataType]:
    return msgspec.json.decode(_newest(row) or "{}", type=dict[str, DataType])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _same_modes(row: Mapping[str, str], text: str) -> bool:
    """Returns whether the stored modes equal these; an earlier version may have written them in
    another form."""
    return _modes(row) == msgspec.json.decode(text, type=UsedModes)


def _modes(row: Mapping[str, str]) -> UsedModes | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=UsedModes)


def _keys(row: Mapping[str, str]) -> frozenset[tuple[FieldPath, ...]]:
    used = (msgspec.json.decode(text, type=UsedModes) for text in row.values())
    merged = DestinationSyncMode.append_dedup
    return frozenset(u.primary_key for u in used if u.destination_sync_mode is merged)


def _file(row: Mapping[str, str]) -> UsedFile | None:
    newest = _newest(row)
    return None if newest is None else msgspec.json.decode(newest, type=UsedFile)


def _numbers(row: Mapping[str, str]) -> dict[int, int]:
    return {int(key): int(value) for key, value in row.items()}


def _texts(numbers: Mapping[int, int]) -> dict[str, str]:
    return {str(key): str(value) for key, value in numbers.items()}

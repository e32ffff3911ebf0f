"""Plans the streams of a run, in pure decisions from the pipeline file, the source's catalog and
the store's memory of earlier runs.

Reads nothing, writes nothing (`penstock plan` prints the result). Decides lanes, shards and notes;
gathers the problems of all streams. Not here: which streams are synced
(``engine.plan.stream_choice``), how each is planned (``engine.plan.stream_plan``). Neighbour:
``engine.plan.prepare`` gathers the inputs.
"""

from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

from penstock.config.pipeline import Pipeline, StreamSettings
from penstock.config.protocol_spec import spec_of
from penstock.config.sections import Resources
from penstock.engine.plan.earlier_modes import modes_of, other_rule_notes
from penstock.engine.plan.empty_namespaces import separated
from penstock.engine.plan.histories import turning, without_history
from penstock.engine.plan.key_types import EXACT_NUMBER
from penstock.engine.plan.left_out_columns import unknown_left_out
from penstock.engine.plan.nested_tables import nested_tables
from penstock.engine.plan.pending_refreshes import refresh_notes, refuse_left_out
from penstock.engine.plan.repeats import repeats
from penstock.engine.plan.saved_cursors import ignored_cursor, kept_cursor
from penstock.engine.plan.state_names import begins_anew, mixed, names_in_states, state_role
from penstock.engine.plan.stream_choice import choose_streams
from penstock.engine.plan.stream_columns import unknown_columns
from penstock.engine.plan.stream_plan import (
    StreamRules,
    deletes_held_back,
    deletions_lost,
    left_out_unknown,
    plan_stream,
)
from penstock.engine.plan.table_names import misnamed, only, record_names, table_names
from penstock.engine.plan.table_types import double_notes, kept_notes
from penstock.engine.plan.unread import inseparable, unread_notes, unread_streams, with_own
from penstock.engine.specs.plan import PlannedStream, UnreadStreams
from penstock.errors import ConfigError, SchemaError
from penstock.model.catalog import (
    Catalog,
    ConnectorSpec,
    FieldPath,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.names import folded
from penstock.model.state import StoredState
from penstock.model.type_words import type_text
from penstock.model.types import EXTRA, MissingColumns
from penstock.protocols.contract import ProtocolPackage, ShardRole, StateRole
from penstock.short_texts import shown
from penstock.store.remembered import Remembered, TableNames, UsedModes

_SHOWN = 10  # columns in a note


_CDC = (
    "cdc: the source drops changes once they are read; after a failure, changes that no state "
    "covers are kept and may come twice; a kill loses unsealed changes if the source drops them "
    "before it sends them"
)


class StreamsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned streams of a run. ``gone``: streams, configured or synced before, that the source
    no longer has; their tables are kept. ``found``: what the store must remember. ``open``: the
    source reveals its streams only while it is read. ``unread``: streams that an earlier run or
    this one does not read."""

    streams: tuple[PlannedStream, ...]
    lanes: int
    notes: tuple[str, ...]
    gone: tuple[StreamId, ...]
    found: Remembered = Remembered()
    open: bool = False
    unread: UnreadStreams = UnreadStreams()


def plan_streams(
    pipeline: Pipeline,
    catalog: Catalog,
    rules: StreamRules,
    *,
    known: Set[StreamId],
    states: Sequence[StoredState],
    sealed: Sequence[StoredState] = (),
    cores: int,
    spec: ConnectorSpec | None = None,
    slots: int | None = None,
    changes_config: bool = False,
    stateless: bool = False,
    brought: Callable[[], bool] = lambda: False,
) -> StreamsPlan:
    """Plans all streams of a run. ``known``: streams synced before. ``sealed``: states that this
    run would save first. ``cores``, ``slots``: of this machine, and of Spark (None: unknown).
    ``changes_config``: the source has sent CONTROL before. ``stateless``: it gets no state,
    whatever is saved. ``brought``: whether a user may have set or imported the saved state. Raises
    ``ConfigError`` with every problem of every stream at once."""
    package, earlier, destination = rules.package, rules.earlier, pipeline.destination
    problems: list[str] = []
    chosen, gone = choose_streams(pipeline, catalog, known, problems)
    problems += unknown_columns(pipeline, [s for s, _ in chosen], package)
    problems += unknown_left_out(pipeline, [s for s, _ in chosen])
    records = record_names(catalog.streams, earlier.tables)
    problems += misnamed(destination, [s.id for s, _ in chosen], earlier.tables, records)
    called = table_names(destination, [s.id for s in catalog.streams], earlier.tables, records)
    streams = _planned_each(chosen, rules, called, problems)
    nested, nested_notes = nested_tables(streams, rules.destination)
    problems += nested
    if problems:
        # the author of a query knows its columns; places of tables do not concern the source
        known_columns = spec_of(package.name).queries or problems == nested
        raise _cannot_run(pipeline, problems, see_discover=not known_columns)
    lanes, notes = _lanes(pipeline, len(streams), states, cores)
    role = state_role(package, earlier, known, catalog.streams)
    unread = unread_streams(
        pipeline, catalog, streams, role, states, earlier, known,
        brought=brought, stateless=stateless,
    )  # fmt: skip
    if not stateless:
        notes += _given(pipeline, streams, role, states, known, unread)
        refuse_left_out(pipeline, streams, role, [*states, *sealed], earlier)
    streams = _in_shards(pipeline, streams, package, spec, slots or cores)
    lanes = max([lanes, *(s.shards for s in streams)])
    if changes_config and lanes > 1:
        lanes, notes = 1, ["the source changes its own configuration: it is read in one lane"]
    notes += _notes(pipeline, catalog, rules, streams, chosen, known)
    notes += [*nested_notes, *catalog.notes, *(_gone(stream, catalog) for stream in gone)]
    planned = [msgspec.structs.replace(s, lane=index % lanes) for index, s in enumerate(streams)]
    found = to_remember(rules, planned, only(called, (s.id for s in streams)))
    # A state may name streams that are not read.
    every = names_in_states(package, catalog.streams)
    found = msgspec.structs.replace(found, state_names={**every, **found.state_names})
    return StreamsPlan(
        streams=tuple(planned), lanes=lanes, notes=tuple(notes), gone=tuple(gone), found=found,
        open=catalog.open, unread=unread,
    )  # fmt: skip


def _in_shards(
    pipeline: Pipeline,
    streams: list[PlannedStream],
    package: ProtocolPackage,
    spec: ConnectorSpec | None,
    most: int,
) -> list[PlannedStream]:
    """Returns the streams with the number of shards in which each is read, ``most`` at most."""
    role, resources = package.sharding, pipeline.resources
    if role is None or resources is None or spec is None:
        return streams
    return [_sharded(s, resources, role, spec, most) for s in streams]


def _cannot_run(pipeline: Pipeline, problems: list[str], *, see_discover: bool) -> ConfigError:
    return ConfigError(
        f"the pipeline {pipeline.pipeline!r} cannot run as it is",
        code="config.streams",
        problems=problems,
        hint="`penstock discover` shows the source's streams and what each supports"
        if see_discover
        else None,
    )


def _notes(
    pipeline: Pipeline,
    catalog: Catalog,
    rules: StreamRules,
    streams: Sequence[PlannedStream],
    chosen: Sequence[tuple[Stream, StreamSettings]],
    known: Set[StreamId],
) -> list[str]:
    """Returns the notes on how the streams are read and on their tables. ``chosen``: each stream
    with its options."""
    notes = [*refresh_notes(pipeline, streams, rules.earlier)]
    notes += separated((s.id for s in streams), known)
    if catalog.open:
        notes.append("the source shows its streams only while it is read")
    if any(s.configured.sync_mode is SyncMode.cdc for s in streams):
        notes.append(_CDC)
    chosen_cursors = {stream.id: settings.cursor_field for stream, settings in chosen}
    for s in streams:
        if s.id in rules.cursors and not (chosen_cursors[s.id] or s.configured.refreshes):
            notes += kept_cursor(s.configured)
        notes += ignored_cursor(s.configured, chosen_cursors[s.id])
        notes += table_notes(s, rules, rules.earlier.columns.get(s.id, {}))
    notes += without_history(streams, {s.id: each.history for s, each in chosen})
    notes += turning(streams, rules.kept_histories)
    return [*notes, *repeats(streams, rules.destination)]


def _gone(stream: StreamId, catalog: Catalog) -> str:
    """Returns the note about a stream that the catalog lacks."""
    if catalog.unnamed:
        return (
            f"the source's catalog does not name the stream {stream}, which may be one of its"
            f" {catalog.unnamed:,} without a name; its table is kept as it is"
        )
    return f"the source no longer has the stream {stream}; its table is kept as it is"


def _planned_each(
    chosen: Sequence[tuple[Stream, StreamSettings]],
    rules: StreamRules,
    called: TableNames,
    problems: list[str],
) -> list[PlannedStream]:
    """Plans the chosen streams one by one; adds the reason to ``problems`` where one cannot be
    planned."""
    streams: list[PlannedStream] = []
    for stream, settings in chosen:
        try:
            streams.append(
                plan_stream(
                    stream,
                    settings,
                    rules,
                    table_name=called.tables[stream.id.key],
                    columns=rules.earlier.columns.get(stream.id, {}),
                    nested=rules.earlier.nested.get(stream.id, {}),
                )
            )
        except ConfigError as e:
            said = e.problems or [f"{e.message}; {e.hint}" if e.hint else e.message]
            problems += [_named(stream, text) for text in said]
        except SchemaError as e:
            problems.append(f"stream {stream.id}: {e.message}")
    return streams


def table_notes(stream: PlannedStream, rules: StreamRules, columns: Mapping[str, str]) -> list[str]:
    """Returns notes about a table that is now written differently, or that keeps rows deleted at
    the source. ``columns``: cleaned names by original ones, so far."""
    had = rules.earlier.modes.get(stream.id)
    notes = _written_otherwise(stream, had)
    notes += other_rule_notes(stream, had) if rules.merges else []
    notes += _recased(stream, columns)
    notes += _exact_keys(stream)
    notes += kept_notes(stream.id, stream.given or stream.schema, stream.declared)
    if rules.merges and not rules.refreshes(stream.id):
        notes += double_notes(stream.id, stream.schema, rules.schemas.get(stream.id))
    notes += _narrowed_decimals(stream) + _lost_deletions(stream, rules.package)
    return notes + _deletes_held_back(stream, rules.package) + _left_out_unknown(stream)


def undeclared_notes(stream: PlannedStream, made: MissingColumns, *, to_tables: bool) -> list[str]:
    """Returns notes about columns for properties that the stream's schema does not declare.
    ``to_tables``: the destination is tables; a connector gets these properties as they came."""
    has = {f.source: f.name for f in stream.schema.fields if f.source in made.names}
    marked = has.pop(stream.mark or "", None)
    names = [*has.values(), *([EXTRA] if made.extra and stream.schema.extra is not None else [])]
    notes = [] if marked is None else [
        f"stream {stream.id}: its records have {stream.mark}, which its schema does not declare:"
        " such a record deletes the row of its key"
    ]  # fmt: skip
    if not names:
        return notes
    if not to_tables and names == [EXTRA]:
        return [
            *notes,
            f"stream {stream.id}: its records have properties that its schema does not declare; the"
            " destination gets them from now on (`undeclared: drop` of the stream leaves them out)",
        ]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return [
        *notes,
        f"stream {stream.id}: its records have properties that its schema does not declare; they"
        f" are kept as JSON in {shown} from now on (`undeclared: drop` of the stream leaves them"
        " out, `undeclared: columns` gives each a column)",
    ]


def to_remember(
    rules: StreamRules, streams: Sequence[PlannedStream], tables: TableNames
) -> Remembered:
    """Returns what the store must keep of these streams before any of their rows is written."""
    return Remembered(
        tables=tables,
        columns={s.id: s.columns for s in streams},
        nested={s.id: s.nested for s in streams},
        modes={s.id: modes_of(s.configured) for s in streams},
        state_names=names_in_states(rules.package, [s.configured.stream for s in streams]),
    )


def _given(
    pipeline: Pipeline,
    streams: Sequence[PlannedStream],
    role: StateRole,
    states: Sequence[StoredState],
    known: Set[StreamId],
    unread: UnreadStreams,
) -> list[str]:
    """Returns notes about the state that the source will be given. Raises ``ConfigError`` where
    some streams need a state that others must not be given (L6)."""
    problem = inseparable(role, states, unread, streams, pipeline.pipeline)
    anew = [s.id for s in streams if begins_anew(s.configured)]
    others = [s.id for s in streams if not begins_anew(s.configured)]
    problem = problem or mixed(role, states, anew, others, pipeline.pipeline)
    if problem is not None:
        for one in [str(s.id) for s in streams if s.configured.refreshes][:1]:
            problem += (
                f"; the refresh of {one} is pending: run it alone (`--streams {one}`), or end it"
                f" (`penstock state reset {pipeline.pipeline} --cancel-refresh {one}`)"
            )
        raise ConfigError(
            f"the pipeline {pipeline.pipeline!r} cannot run as it is",
            code="config.mixed_state",
            problems=[problem],
            hint="nothing was read and nothing was changed",
        )
    notes = unread_notes(role, states, unread)
    given = role.without(with_own(role, states, unread.again), anew)
    within = role.within(given, [s.id for s in streams])
    if role.describe(within)["streams"] != role.describe(given)["streams"]:
        return [
            *notes,
            "the streams of the source share one position: once this run has moved it on, streams"
            " that are not in it are read from the start when they run next",
        ]
    absent = sorted(known - {s.id for s in streams})
    if others or not absent or role.splits(states, anew):
        return notes
    return [
        *notes,
        "every stream of this run starts from the beginning, so the source gets no state; its "
        f"state cannot be split, and its part for {', '.join(map(str, absent[:5]))} is replaced",
    ]


def _written_otherwise(stream: PlannedStream, had: UsedModes | None) -> list[str]:
    """Returns a note where the stream's table is now written in another mode, or under another
    primary key (in whatever order), than under ``had``, the modes of the last run."""
    mode = stream.disposition.mode
    if had is None:
        return []
    if had.destination_sync_mode is not mode:
        return [
            f"stream {stream.id}: its table was written under {had.destination_sync_mode.value} "
            f"until now and is written under {mode.value} from now on"
        ]
    key = stream.configured.primary_key
    same = not had.primary_key or set(had.primary_key) == set(key)
    if not stream.disposition.primary_key or same:
        return []
    return [
        f"stream {stream.id}: its table kept one row for each {key_text(had.primary_key)} "
        f"until now and keeps one for each {key_text(key)} from now on"
    ]


def _narrowed_decimals(stream: PlannedStream) -> list[str]:
    """Returns a note where the source's schema allows numbers with more digits than their columns
    hold."""
    fields = (stream.given or stream.schema).fields
    columns = [f"{f.source} ({type_text(f.type)})" for f in fields if f.source in stream.narrowed]
    if not columns:
        return []
    return [
        f"stream {stream.id}: the source's schema allows numbers with more than 38 digits in "
        f"{', '.join(columns)}: a number with more digits before the point becomes NULL, one with "
        "more after it is rounded, both with an entry in the row; `types` of the stream gives such "
        "a column another type, as decimal(38,9), number or string"
    ]


def _exact_keys(stream: PlannedStream) -> list[str]:
    """Returns a note where a new table stores numbers of the key as decimals."""
    if not stream.exact:
        return []
    named = (p[0] for p in stream.configured.primary_key if len(p) == 1 and p[0] in stream.exact)
    name = next(named, None)
    to_text = (
        ""
        if name is None
        else f" (`types: {{ {shown(name)}: string }}` of the stream makes it text of any number of"
        " digits, in which 1, 1.0 and 1e0 are one key too)"
    )
    return [
        f"stream {stream.id}: its key {', '.join(stream.exact)} is a number, which the new table "
        f"stores as {type_text(EXACT_NUMBER)}: a double would take keys that differ after its "
        "15th digit for one; a row whose key has more than 20 digits before the point or 18 after "
        f"it is a reject{to_text}"
    ]


def _recased(stream: PlannedStream, earlier: Mapping[str, str]) -> list[str]:
    """Returns a note for each new column whose name differs only by case from a column that the
    source no longer has. ``earlier``: cleaned names by original ones, so far."""
    gone = {folded(name): name for name in earlier if name not in stream.columns}
    new = (f for f in (stream.given or stream.schema).fields if f.source not in earlier)
    return [
        f"stream {stream.id}: the column {gone[folded(f.source)]} is {f.source} now, which is"
        f" another column ({f.name} in a table): the old one has no value in new rows; name it as"
        " before to go on with it"
        for f in new
        if folded(f.source) in gone
    ]


def _lost_deletions(stream: PlannedStream, package: ProtocolPackage) -> list[str]:
    """Returns a note where transforms leave out the column that marks deleted rows."""
    if not deletions_lost(stream, package):
        return []
    return [
        f"stream {stream.id}: its transforms leave out {package.deleted_at_field}: rows "
        "that are gone at the source are written as if they were there"
    ]


def _deletes_held_back(stream: PlannedStream, package: ProtocolPackage) -> list[str]:
    """Returns a note where a transform may drop a delete, which is then not carried out."""
    if not deletes_held_back(stream):
        return []
    return [
        f"stream {stream.id}: a row with {package.deleted_at_field} deletes the row of its key, and"
        " its transforms may leave it out: only transform-validate, and SQL of columns, WHERE, "
        f"ORDER BY and LIMIT that selects {key_text(stream.configured.primary_key)} and "
        f"{package.deleted_at_field} as they are, let every delete pass; the row of a delete that "
        "does not pass stays"
    ]


def _left_out_unknown(stream: PlannedStream) -> list[str]:
    """Returns a note where rows of a compared model that transforms leave out count as sent."""
    if not left_out_unknown(stream):
        return []
    return [
        f"stream {stream.id}: a row that its transforms leave out counts as sent, so that it stays "
        "at the destination, and is not sent later unless it changes: only transform-validate, and "
        "SQL of columns, WHERE, ORDER BY and LIMIT that selects "
        f"{key_text(stream.configured.primary_key)} as it is, show which rows they leave out"
    ]


def key_text(key: Sequence[FieldPath]) -> str:
    return ", ".join(".".join(path) for path in key)


def _sharded(
    stream: PlannedStream, resources: Resources, role: ShardRole, spec: ConnectorSpec, slots: int
) -> PlannedStream:
    found = role.shards(spec, stream.configured, resources, slots)
    configured = msgspec.structs.replace(stream.configured, shards=found.count)
    return msgspec.structs.replace(
        stream, configured=configured, shards=found.count, hints=found.hints
    )


def _named(stream: Stream, text: str) -> str:
    """Prefixes a problem with the stream's name, unless it has it."""
    return text if f"stream {stream.id}" in text else f"stream {stream.id}: {text}"


def _lanes(
    pipeline: Pipeline, streams: int, states: Sequence[StoredState], cores: int
) -> tuple[int, list[str]]:
    """Returns the number of lanes, and notes. One lane unless the pipeline requests more; then as
    many as independent states allow."""
    wanted = pipeline.lanes
    if wanted == 1 or streams <= 1:
        return 1, []
    if any(s.scope.stream is None for s in states):
        return 1, ["the source shares one state between its streams: they are read in one lane"]
    if wanted == "auto":
        if not states:
            return 1, ["lanes: auto reads in one lane until the source has shown its kind of state"]
        wanted = cores
    return min(int(wanted), streams), []

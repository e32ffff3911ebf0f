"""A source that Spark reads: its one stream has the columns of a query's result.

Moves no record. Neighbours: ``engine.plan.source_endpoint`` is any other source;
``spark.model`` and ``databases.postgres`` read the query.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config.modes import SENDS, canonical
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.connectors.source import SourceConnector
from penstock.databases import postgres
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.plan.endpoint import Save, running_folder
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.transform_rules import transform_rules
from penstock.engine.query.model_diff import ModelDiff
from penstock.engine.query.query_reader import QueryReader
from penstock.engine.specs.lane import LaneReader
from penstock.engine.specs.observer import RunObserver
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Change, FieldPath, Stream, StreamId, SyncMode
from penstock.model.database_query import DatabaseQuery
from penstock.model.staged_rows import DELETED_AT, RowForm
from penstock.model.state import StoredState
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.connection import EventSink
from penstock.protocols.json_schema.exact_types import object_schema
from penstock.short_texts import shown
from penstock.spark.key_types import fits
from penstock.spark.model import Model, columns, failing, frame, untyped_columns
from penstock.spark.text_files import file_columns
from penstock.spark.types import ddl
from penstock.store.contract import Store
from penstock.tables.contract import SessionNeeds
from penstock.tables.formats import session_needs
from penstock.tasks.submit import Submit
from penstock.transforms.model_cursor import begins_after
from penstock.transforms.spark_model import model_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = 10  # of the columns in a note
_MARKS = frozenset({Kind.timestamp, Kind.timestamp_ntz, Kind.date, Kind.string})
"""Types that a model's own deletion time column may have."""


class ModelSource(SourceEndpoint):
    """A source that Spark reads: a query, a table, files. Without the run's Spark (``plan``), its
    columns are those of the last run."""

    def __init__(
        self,
        pipeline: Pipeline,
        connect: Callable[[EventSink], SourceConnector],
        store: Store,
        observer: RunObserver,
        *,
        save: Save,
    ) -> None:
        super().__init__(pipeline, connect, store, observer, save=save)
        self._store = store
        name, url = self.config.get("stream"), self.config.get("datasource")
        target, named = self.connector.ref.target or "", name if isinstance(name, str) else None
        self.model = (
            _of_database(postgres.query_of(target, url, named), target)
            if isinstance(url, str)
            else _dialect(model_of(target, running_folder(pipeline.source), named), self.config)
        )
        self._open: Callable[[SessionNeeds], SparkSession] | None = None
        self._spark: SparkSession | None = None  # once it is discovered
        self._snapshots: Path | None = None
        self._advice: str | None = None

    @property
    def stream(self) -> StreamId:
        return StreamId(None, self.model.name)

    def may_open(
        self,
        spark: "Callable[[SessionNeeds], SparkSession]",
        snapshots: Path,
        handed_over: Model | None = None,
    ) -> None:
        self._open, self._snapshots = spark, snapshots
        self.model = handed_over or self.model

    def reader(
        self,
        lanes: LaneReader,
        mailbox: Mailbox,
        streams: Sequence[PlannedStream],
        rules: StreamRules,
        form: RowForm | None,
        saved: Callable[[], Sequence[StoredState]],
        submit: Submit,
    ) -> LaneReader:
        assert self._spark is not None and self._snapshots is not None
        diff = ModelDiff(
            self._spark,
            self.model,
            self._snapshots,
            saved=saved,
            allow_empty=bool(self.config.get("allow_empty")),
            tries_again=any(s.retry_rejected for s in streams),
            rules=transform_rules(streams, rules),
            form=form,
        )
        return QueryReader(self._spark, self.model, diff, mailbox, lanes, submit)

    def given(self, catalog: Catalog | None = None) -> str:
        """Returns nothing: its catalog is that of the run."""
        del catalog
        return ""

    def discover(self, *, first: bool = True, recovers: bool = False) -> Catalog:
        """Returns its one stream, with the columns of the query's result. Raises
        ``ConfigError``."""
        del first, recovers
        fields: tuple[Field, ...] | None = None
        if (database := self.model.database) is not None:
            described = postgres.describe(database)
            overrides = self._pipeline.stream_settings(self.stream)
            if overrides is not None and overrides.cursor_field:
                postgres.refuse_cursor(database, described, overrides.cursor_field[0])
            fields = tuple(c.field for c in described)
        if self._open is not None:
            self._spark = self._open(_needs(self.model))
            fields = fields or self._analysed(self._spark)
        if fields is None:
            return Catalog((self._remembered(),))
        types = {f.source: f.type for f in fields}
        if Change.removed in self._sends():
            own = types.setdefault(DELETED_AT, DataType(Kind.timestamp))
            if own.kind not in _MARKS:
                raise ConfigError(
                    f"the column {DELETED_AT!r} of the query is {own.kind.value}: with mode mirror"
                    " it holds the time at which a row was gone",
                    code="source.query",
                    where=self.model.where,
                    hint="CAST it to TIMESTAMP, or leave it out",
                )
        earlier = self._earlier_types() if self.model.query is None else {}
        self.typed = {self.stream: earlier | self.typed.get(self.stream, {}) | types}
        return Catalog((self._stream(types),))

    def _analysed(self, spark: "SparkSession") -> tuple[Field, ...]:
        """Returns the columns of what Spark reads, with the types of earlier runs that are kept:
        those of text files, of keys by which rows are compared, and of columns of nulls."""
        if self.model.text is None:
            rows = frame(spark, self.model)
            found, untyped = columns(rows, self.model), untyped_columns(rows, self.model)
            found = self._with_keys(rows, found)
            return self._typed(found, untyped) if untyped else found
        known = self._known_types(spark)
        fields, self._advice = file_columns(spark, self.model, known)
        if self._advice is not None:
            self.notes.append(f"{self.stream}: {self._advice}")
        self.typed = {self.stream: known | {f.source: f.type for f in fields}}
        return fields

    def _with_keys(self, rows: "DataFrame", found: tuple[Field, ...]) -> tuple[Field, ...]:
        """Returns the columns. Columns of a key by which rows are compared keep the types of the
        last run, where that changes no value."""
        settings = self._pipeline.stream_settings(self.stream)
        if settings is None or not self._sends():
            return found
        keys = {path[0] for path in settings.primary_key or ()}
        known = self._stored_types() | self._earlier_types()
        kept = {
            f.source: known[f.source]
            for f in found
            if f.source in keys and known.get(f.source, f.type) != f.type
        }
        types = {name: ddl(kind) for name, kind in kept.items()}
        if not types:
            return found
        with failing(self.model):
            if not fits(rows, types):
                return found
        self.model = msgspec.structs.replace(self.model, types=types)
        return tuple(msgspec.structs.replace(f, type=kept.get(f.source, f.type)) for f in found)

    def _typed(self, found: tuple[Field, ...], untyped: frozenset[FieldPath]) -> tuple[Field, ...]:
        """Returns the columns. Those whose values are all null get the types of earlier runs. A
        column or field that never had a value is left out until it has one, unless the pipeline
        names it or the model has no other."""
        known = self._stored_types() | self._earlier_types()
        kept = dict(self._named_columns())
        made: list[Field] = []
        for field in found:
            kind = _with_known(field.type, known.get(field.source), (field.source,), untyped)
            kind = kind or (field.type if field.source in kept else None)
            if kind is not None:
                made.append(msgspec.structs.replace(field, type=kind))
            else:
                self.notes.append(
                    f"{self.stream}: no row has a value of {field.source}: the column comes with "
                    "the first value and has its type"
                )
        return tuple(made) or found

    def _known_types(self, spark: "SparkSession") -> dict[str, DataType]:
        """Returns the types of a text file's columns that do not depend on its rows: the user's,
        else those of an earlier run. An earlier version did not store them: its table has them;
        where transforms made the table's columns, Spark infers the same types as that version
        did."""
        known = self._earlier_types()
        if not known:
            known = self._stored_types()
            if known and (self._pipeline.transforms or self._pipeline.enrichments):
                known = {f.source: f.type for f in columns(frame(spark, self.model), self.model)}
        overrides = self._pipeline.stream_settings(self.stream)
        return known | dict((overrides and overrides.types) or {})

    def _earlier_types(self) -> dict[str, DataType]:
        """Returns the types that earlier runs kept of the model's columns."""
        return dict(self._store.remembered(self._pipeline.pipeline).types.get(self.stream, {}))

    def _stored_types(self) -> dict[str, DataType]:
        """Returns the types of the columns of the newest rows that were read, by original name."""
        schema = self._store.newest_schemas(self._pipeline.pipeline, [self.stream])
        known = schema.get(self.stream)
        return {f.source: f.type for f in known.fields} if known is not None else {}

    def _sends(self) -> tuple[Change, ...]:
        """Returns which rows are sent of a model that is compared by its key; empty: it is not
        compared."""
        overrides = self._pipeline.stream_settings(self.stream)
        if overrides is None or not overrides.primary_key or self.model.cursor:
            return ()
        return SENDS.get(canonical(overrides.mode or ""), (None, ()))[1]

    def _remembered(self) -> Stream:
        """Returns the stream as the last run had it; before the first run, with the columns that
        the pipeline file names. Transforms are not planned over columns that are not known."""
        stored = self._earlier_types()
        transformed = bool(self._pipeline.transforms or self._pipeline.enrichments)
        types = stored or ({} if transformed else self._stored_types())
        known = bool(types)
        self.unread = transformed and not known
        named = [*self._named_columns()]
        text = "its columns are those of the last run" if known else "its columns are known then"
        if named and not known:
            text += f", and whether they include {_listed(named)}"
        also = ", and its transforms are planned then" if self.unread else ""
        self.notes.append(f"Spark reads the query when the pipeline runs; {text}{also}")
        for name, kind in named:
            types.setdefault(name, kind)
        stream = self._stream(types)
        return msgspec.structs.replace(stream, assumed=not known)

    def _named_columns(self) -> Iterator[tuple[str, DataType]]:
        """Yields the columns that the pipeline file names, with their types where it gives them."""
        settings = self._pipeline.stream_settings(self.stream)
        if settings is None:
            return
        yield from (settings.types or {}).items()
        kept = (c if isinstance(c, str) else c[0] for c in settings.columns or ())
        paths = (*(settings.primary_key or ()), settings.cursor_field or ())
        for name in (*(path[0] for path in paths if path), *kept):
            yield name, DataType(Kind.string)

    def _stream(self, types: Mapping[str, DataType]) -> Stream:
        modes = (SyncMode.full_refresh, SyncMode.incremental)
        return Stream(
            id=self.stream,
            json_schema=object_schema(types),
            sync_modes=modes if self.model.cursor else modes[:1],
            compared=True,
            reject_hint=self._advice,
            begins_after_cursor=self._begins_after_cursor(types),
        )

    def _begins_after_cursor(self, types: Mapping[str, DataType]) -> bool:
        """Whether the read begins after the cursor. Not for a floating-point column: NaN is no
        saved cursor, and sorts above every one."""
        settings = self._pipeline.stream_settings(self.stream)
        path = settings.cursor_field if settings is not None else None
        if path is None or (path[0] in types and types[path[0]].kind is Kind.number):
            return False
        return begins_after(self.model.query or "", path[0])


def _with_known(
    kind: DataType, known: DataType | None, path: FieldPath, untyped: frozenset[FieldPath]
) -> DataType | None:
    """Returns the type of a column or a field, with the known types where all values are null;
    None: there is none."""
    if path in untyped:
        return known
    if kind.kind is not Kind.struct or all(p[: len(path)] != path for p in untyped):
        return kind
    before = {f.source: f.type for f in known.fields} if known is not None else {}
    fields: list[Field] = []
    for field in kind.fields:
        below = (*path, field.source)
        inner = _with_known(field.type, before.get(field.source), below, untyped)
        if inner is not None:
            fields.append(msgspec.structs.replace(field, type=inner))
    return DataType(Kind.struct, fields=tuple(fields)) if fields else None


def _listed(columns: Sequence[tuple[str, DataType]]) -> str:
    names = [*dict.fromkeys(shown(name) for name, _ in columns)]
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _of_database(query: DatabaseQuery, text: str) -> Model:
    cursor = len(query.pieces) > 1
    return Model(name=query.name, query=text, cursor=cursor, database=query, where=query.where)


def _dialect(model: Model, config: Mapping[str, Any]) -> Model:
    """Returns the model of text files with the dialect that the configuration names. Raises
    ``ConfigError``."""
    given = {name: config[name] for name in ("separator", "escape") if name in config}
    if not given:
        return model
    if model.text is None or model.text.kind != "csv":
        raise ConfigError(
            f"source.config: {', '.join(given)}: the source is not a CSV or TSV file",
            code="config.source",
            hint="leave it out",
        )
    dialect = msgspec.structs.replace(model.text.dialect, **given)
    return msgspec.structs.replace(model, text=msgspec.structs.replace(model.text, dialect=dialect))


def model_needs(pipeline: Pipeline) -> SessionNeeds:
    """Returns what a pipeline's query requires of the Spark session, without opening anything;
    nothing for any other source. A wrong reference requires nothing: its run reports the error."""
    try:
        ref = parse_ref(pipeline.source.use)
        queried = ref.kind is RefKind.query and "datasource" not in pipeline.source.config
        model = model_of(ref.target or "", running_folder(pipeline.source)) if queried else None
    except ConfigError:
        return SessionNeeds()
    return _needs(model) if model is not None else SessionNeeds()


def _needs(model: Model) -> SessionNeeds:
    return session_needs(model.tables) if model.tables is not None else SessionNeeds()

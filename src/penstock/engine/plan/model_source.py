"""A source that Spark reads: its one stream has the columns of a query's result.

Moves no record. Neighbours: ``engine.plan.source_endpoint`` is any other source;
``spark.model`` and ``spark.postgres`` read the query.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.config.modes import canonical
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.endpoint import Save
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream, StreamId, SyncMode
from penstock.model.staged_rows import DELETED_AT
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.connection import EventSink
from penstock.protocols.json_schema.exact_types import object_schema
from penstock.spark import postgres
from penstock.spark.model import Model, columns, frame
from penstock.store.contract import Store
from penstock.tables.contract import SessionNeeds
from penstock.tables.open import open_table
from penstock.transforms.model_cursor import begins_after
from penstock.transforms.spark_model import model_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARKS = frozenset({Kind.timestamp, Kind.timestamp_ntz, Kind.date, Kind.string})
"""Types of a model's own column that may tell when a row was gone."""


class ModelSource(SourceEndpoint):
    """A source that Spark reads: a query, a table, files. ``open``: returns the run's Spark
    session; None: there is none (``plan``), and the columns are those of the last run. ``spark``:
    the session, once :meth:`discover` has opened it. ``snapshots``: the folder of what was sent
    before, for models that are compared with it."""

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
            postgres.model_of(target, url, named)
            if isinstance(url, str)
            else model_of(target, Path.cwd(), named)
        )
        self.open: Callable[[SessionNeeds], SparkSession] | None = None
        self.spark: SparkSession | None = None
        self.snapshots: Path | None = None

    @property
    def stream(self) -> StreamId:
        return StreamId(None, self.model.name)

    def needs(self) -> SessionNeeds:
        """Returns what the query requires of the Spark session. Raises ``ConfigError``."""
        return _needs(self.model)

    def discover(self, *, first: bool = True, recovers: bool = False) -> Catalog:
        """Returns its one stream, with the columns of the query's result. Raises
        ``ConfigError``."""
        del first, recovers
        fields: tuple[Field, ...] | None = None
        if self.model.database is not None:
            described = postgres.describe(self.model)
            overrides = self._pipeline.stream_settings(self.stream)
            if overrides is not None and overrides.cursor_field:
                postgres.refuse_cursor(self.model, described, overrides.cursor_field[0])
            fields = tuple(c.field for c in described)
        if self.open is not None:
            self.spark = self.open(self.needs())
            fields = fields or columns(frame(self.spark, self.model), self.model)
        if fields is None:
            return Catalog((self._remembered(),))
        types = {f.source: f.type for f in fields}
        if self._removes():
            own = types.setdefault(DELETED_AT, DataType(Kind.timestamp))
            if own.kind not in _MARKS:
                raise ConfigError(
                    f"the column {DELETED_AT!r} of the query is {own.kind.value}: with mode mirror"
                    " it holds the time at which a row was gone",
                    code="source.query",
                    where=self.model.where,
                    hint="CAST it to TIMESTAMP, or leave it out",
                )
        return Catalog((self._stream(types),))

    def _removes(self) -> bool:
        """Whether rows that are gone from the model are sent."""
        overrides = self._pipeline.stream_settings(self.stream)
        mirrors = (
            overrides is not None
            and overrides.mode is not None
            and canonical(overrides.mode) == "mirror"
        )
        return mirrors and bool(overrides and overrides.primary_key) and not self.model.cursor

    def _remembered(self) -> Stream:
        """Returns the stream as the last run had it; before the first run, with the columns that
        the pipeline file names."""
        schema = self._store.newest_schemas(self._pipeline.pipeline, [self.stream])
        known = schema.get(self.stream)
        types = {f.source: f.type for f in known.fields} if known is not None else {}
        text = "its columns are those of the last run" if types else "its columns are known then"
        self.notes.append(f"Spark reads the query when the pipeline runs; {text}")
        overrides = self._pipeline.stream_settings(self.stream)
        named = (
            (*(overrides.primary_key or ()), overrides.cursor_field or ())
            if overrides is not None
            else ()
        )
        for path in named:
            if path:
                types.setdefault(path[0], DataType(Kind.string))
        stream = self._stream(types)
        return msgspec.structs.replace(stream, assumed=known is None)

    def _stream(self, types: Mapping[str, DataType]) -> Stream:
        modes = (SyncMode.full_refresh, SyncMode.incremental)
        return Stream(
            id=self.stream,
            json_schema=object_schema(types),
            sync_modes=modes if self.model.cursor else modes[:1],
            compared=True,
            begins_after_cursor=self._begins_after_cursor(types),
        )

    def _begins_after_cursor(self, types: Mapping[str, DataType]) -> bool:
        """Not by a floating-point column: NaN is no saved cursor, and above every one."""
        settings = self._pipeline.stream_settings(self.stream)
        path = settings.cursor_field if settings is not None else None
        if path is None or (path[0] in types and types[path[0]].kind is Kind.number):
            return False
        return begins_after(self.model.query or "", path[0])


def model_needs(pipeline: Pipeline) -> SessionNeeds:
    """Returns what a pipeline's query requires of the Spark session, without opening anything; of
    any other source: nothing. A reference that is wrong requires nothing: its run says so."""
    try:
        ref = parse_ref(pipeline.source.use)
        queried = ref.kind is RefKind.query and "datasource" not in pipeline.source.config
        model = model_of(ref.target or "", Path.cwd()) if queried else None
    except ConfigError:
        return SessionNeeds()
    return _needs(model) if model is not None else SessionNeeds()


def _needs(model: Model) -> SessionNeeds:
    return open_table("delta", "/", {}).needs() if model.delta else SessionNeeds()

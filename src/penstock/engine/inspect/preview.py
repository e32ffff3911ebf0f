"""Reads a few rows of one stream, decoded as a run would decode them; nothing is kept.

No Spark and no log: the connector runs next to the command and is stopped once it has sent enough.
Not here: the rules of ``engine.plan.streams`` (there is no destination). Neighbour: ``cli`` prints
the rows.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, cast

from penstock.codec.columns import ColumnDecoder, Columns
from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import row_schema
from penstock.codec.python_values import python_values
from penstock.codec.untyped import Table
from penstock.config.did_you_mean import hint
from penstock.connectors.source import SourceConnector
from penstock.engine.worker.row_decoding import ChangedValueCounts
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.model.catalog import Catalog, ConfiguredStream, Stream, StreamId, SyncMode
from penstock.model.events import Batch, ConnectorExited, Control, Error, Event, Schema
from penstock.model.names import clean_columns
from penstock.model.types import (
    CHANGES,
    EXTRA,
    EXTRACTED_AT,
    RAW_ID,
    SEQ,
    DataType,
    Field,
    Kind,
    RowSchema,
    UndeclaredPolicy,
)
from penstock.protocols.contract import ProtocolPackage
from penstock.protocols.json_schema.paths import closed
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.runtimes.contract import RunTimeouts

MAX_SECONDS = 300.0


def preview(
    connector: SourceConnector,
    config: dict[str, Any],
    stream: str | None,
    limit: int,
    changed: Callable[[Control], None] = lambda _: None,
) -> dict[str, Any]:
    """Returns ``{"rows": [...], "changes": n, "notes": [...]}``: at most ``limit`` rows of the
    stream (of the first one where ``stream`` is None), in which values that do not fit their type
    are NULL; ``changes``: their number; ``notes``: the notes on decoding in a run's report.
    ``changed`` is called with a configuration that the connector changed while it was read. Raises
    ``SourceError``."""
    timeouts = RunTimeouts(total=MAX_SECONDS)
    package = connector.protocol
    catalog = connector.discover(config, timeouts)
    rows = _Rows(package, stream, limit)
    configured: tuple[ConfiguredStream, ...] = ()
    if not catalog.open:
        chosen = _choose(catalog, stream)
        overrides = StreamOverrides(
            sync_mode=SyncMode.full_refresh.value, destination_sync_mode="append"
        )
        configured = (connector.role.configure(chosen, overrides),)
        rows.schema(chosen.id, chosen.json_schema)
    request = ReadRequest(
        config=config,
        streams=configured,
        timeouts=timeouts,
        open=catalog.open,
        abilities=connector.spec().abilities,
        limit=limit,
        dry_run=True,
        unchosen=tuple(s for s in catalog.streams if s.id != rows.stream),
    )
    with closing(connector.read(request)) as events:
        for event in events:
            if isinstance(event, Control):
                changed(event)
            rows.take(event)
            if len(rows.found) >= limit:
                break
    if rows.stream is None and stream is not None:
        raise _unknown(stream, rows.met)
    return {"rows": rows.found, "changes": rows.changes, "notes": rows.odd.notes()}


class _Rows:
    """Collects the rows of the wanted stream (None: the first that is read), decoded by its newest
    schema. A stream whose schema has no properties, or had none at first, gives its records as
    text, ``{"record": ...}``."""

    def __init__(self, package: ProtocolPackage, wanted: str | None, limit: int) -> None:
        self._package, self._wanted, self._limit = package, wanted, limit
        self._schema: RowSchema | None = None
        self._whole = False
        self._decoders: dict[bool, RowDecoder | ColumnDecoder] = {}
        self.stream: StreamId | None = None
        self.met: list[StreamId] = []
        self.found: list[dict[str, Any]] = []
        self.changes = 0
        self.odd = ChangedValueCounts()

    def schema(self, stream: StreamId, json_schema: Any) -> None:
        self.met.append(stream)
        if self.stream is None and self._wanted in (None, str(stream), stream.name):
            self.stream = stream
        if stream == self.stream:
            record = self._package.schema.data_type(json_schema)
            schema = row_schema(record, clean_columns(f.source for f in record.fields), None)
            self._whole = not schema.fields or (self._whole and not closed(json_schema))
            if self._package.keeps_undeclared:
                more = Field(EXTRA, EXTRA, DataType(Kind.json))
                schema = RowSchema((*schema.fields, more))
            self._schema = None if self._whole else schema
            self._decoders.clear()

    def take(self, event: Event) -> None:
        """Takes an event of the source. Raises ``SourceError`` with the connector's own message."""
        match event:
            case Schema():
                self.schema(event.stream, event.json_schema)
            case Batch():
                self._batch(event)
            case Error():
                original = event.raw or None
                raise SourceError(
                    event.message, code=event.code, hint=event.hint, connector=original
                )
            case ConnectorExited(code=code) if code != 0:
                raise _ended(code, event.stderr_tail)
            case _:
                pass

    def _batch(self, batch: Batch) -> None:
        if batch.stream != self.stream:
            return
        left = self._limit - len(self.found)
        if self._schema is None:
            texts = (bytes(body).decode("utf-8", "replace") for body in batch.bodies[:left])
            self.found += [{"record": text} for text in texts]
            return
        decoder = self._decoder(self._schema, columnar=isinstance(batch.bodies, Columns))
        decoded: Any = cast(Any, decoder).decode(batch.bodies, 0, batch.extracted_at, batch.changes)
        self.changes += decoded.cast_failures
        self.odd.count(batch.stream, decoded, self._schema, texts=False)
        kept = decoded.table.drop_columns([SEQ, RAW_ID, EXTRACTED_AT, CHANGES])
        for row in _python_rows(kept.slice(0, left)):
            if row.get(EXTRA, "") is None:
                del row[EXTRA]
            self.found.append(row)

    def _decoder(self, schema: RowSchema, *, columnar: bool) -> RowDecoder | ColumnDecoder:
        if columnar not in self._decoders:
            words, keeps = self._package.change_words, self._package.keeps_undeclared
            policy = UndeclaredPolicy.keep if keeps else UndeclaredPolicy.drop
            self._decoders[columnar] = (
                ColumnDecoder(schema, words=words)
                if columnar
                else RowDecoder(schema, words=words, undeclared=policy)
            )
        return self._decoders[columnar]


def _python_rows(table: Table) -> list[dict[str, Any]]:
    columns = [list(python_values(column.combine_chunks())) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _choose(catalog: Catalog, name: str | None) -> Stream:
    found = [s for s in catalog.streams if name is None or name in (str(s.id), s.id.name)]
    if found:
        return found[0]
    raise _unknown(name, [s.id for s in catalog.streams])


def _unknown(name: str | None, known: Sequence[StreamId]) -> ConfigError:
    if name is None:
        return ConfigError(
            "the source has no stream", code="config.streams", hint="check its configuration"
        )
    return ConfigError(
        f"unknown stream {name!r}",
        code="config.streams",
        hint=hint(name, dict.fromkeys(map(str, known)), "the source has"),
    )


def _ended(code: int | None, tail: str) -> PenstockError:
    said = f"; its last output: {tail.strip()}" if tail else ""
    return SourceError(f"the source ended with exit code {code}{said}", code="source.exited")

"""Reads and writes the rows of names and of schema versions in SQL; both only grow.

Functions over an open transaction, whose caller has checked the lease where they write. Not here:
which rows may be added (``rules``), what a row means (``remembered``), the tables (``schema``).
``sql`` calls them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete
from sqlalchemy.engine import Connection, Row

from penstock.model.catalog import StreamId
from penstock.model.types import RowSchema
from penstock.store import rules
from penstock.store.checksums import sealed
from penstock.store.damage import open_value
from penstock.store.database import insert_all, rows_of
from penstock.store.database_url import chunks
from penstock.store.schema import NAMES, SCHEMAS


def names(
    conn: Connection, pipeline: str, kinds: Sequence[str] | None = None
) -> dict[str, dict[str, str]]:
    """Returns the rows of these kinds (None: of all): kind -> {text: text}; ``remembered`` defines
    the kinds."""
    if kinds is None:
        return {row.kind: _names(pipeline, row) for row in conn.execute(rows_of(NAMES, pipeline))}
    found: dict[str, dict[str, str]] = {}
    for part in chunks(kinds):
        rows = conn.execute(rows_of(NAMES, pipeline).where(NAMES.c.kind.in_(part)))
        found.update((row.kind, _names(pipeline, row)) for row in rows)
    return found


def grow_names(
    conn: Connection,
    pipeline: str,
    known: Mapping[str, dict[str, str]],
    wanted: Mapping[str, dict[str, str]],
) -> None:
    """Adds the names of ``wanted`` that are not stored yet. ``known``: the stored rows of these
    kinds. Raises ``StateError`` (``state.name_changed``) if a mapping would change."""
    fresh = rules.new_names(pipeline, known, wanted)
    for part in chunks(fresh):
        conn.execute(delete(NAMES).where(NAMES.c.pipeline == pipeline, NAMES.c.kind.in_(part)))
    insert_all(
        conn,
        NAMES,
        [
            # ASCII only: an original may hold a character that no database takes (U+0000)
            {
                "pipeline": pipeline,
                "kind": kind,
                "body": sealed(json.dumps(known.get(kind, {}) | new), _names_of(kind)),
            }
            for kind, new in fresh.items()
        ],
    )


def schema_versions(
    conn: Connection, pipeline: str, wanted: Mapping[StreamId, RowSchema]
) -> dict[StreamId, RowSchema]:
    """Stores schemas that differ from their stream's newest, each under the next version; returns
    all of ``wanted`` with their versions."""
    newest = newest_schemas(conn, pipeline, wanted)
    answer = {s: rules.next_schema(newest.get(s), schema) for s, schema in wanted.items()}
    new = {s: schema for s, schema in answer.items() if schema is not newest.get(s)}
    insert_all(
        conn,
        SCHEMAS,
        [
            {
                "pipeline": pipeline,
                "stream": stream.key,
                "version": schema.version,
                "body": sealed(
                    msgspec.json.encode(schema).decode(), _schema_of(stream.key, schema.version)
                ),
            }
            for stream, schema in new.items()
        ],
    )
    return answer


def newest_schemas(
    conn: Connection, pipeline: str, streams: Iterable[StreamId]
) -> dict[StreamId, RowSchema]:
    """Returns the newest schema of each of these streams that has one."""
    wanted = {stream.key: stream for stream in streams}
    stored: dict[str, RowSchema] = {}
    for part in chunks(wanted):
        rows = conn.execute(
            rows_of(SCHEMAS, pipeline).where(SCHEMAS.c.stream.in_(part)).order_by(SCHEMAS.c.version)
        )
        stored.update((row.stream, _schema(pipeline, row)) for row in _newest(rows))
    return {wanted[key]: schema for key, schema in stored.items()}


def schemas(conn: Connection, pipeline: str, stream: StreamId) -> dict[int, RowSchema]:
    """Maps each version of a stream's schema to the schema."""
    rows = conn.execute(
        rows_of(SCHEMAS, pipeline).where(SCHEMAS.c.stream == stream.key).order_by(SCHEMAS.c.version)
    )
    return {row.version: _schema(pipeline, row) for row in rows}


def verify(conn: Connection, pipeline: str) -> None:
    """Raises ``StateError`` (``state.damaged``) if a row is damaged."""
    for row in conn.execute(rows_of(NAMES, pipeline)):
        open_value(pipeline, row.body, _names_of(row.kind))
    for row in conn.execute(rows_of(SCHEMAS, pipeline)):
        open_value(pipeline, row.body, _schema_of(row.stream, row.version))


def _newest(rows: "Iterable[Row[Any]]") -> "Iterable[Row[Any]]":
    """Returns the last row of each stream."""
    return {row.stream: row for row in rows}.values()


def _names(pipeline: str, row: "Row[Any]") -> dict[str, str]:
    return json.loads(open_value(pipeline, row.body, _names_of(row.kind)))


def _schema(pipeline: str, row: "Row[Any]") -> RowSchema:
    text = open_value(pipeline, row.body, _schema_of(row.stream, row.version))
    return msgspec.json.decode(text, type=RowSchema)


def _names_of(kind: str) -> str:
    return f"the record {kind!r}"


def _schema_of(stream: str, version: int) -> str:
    return f"version {version} of the schema of {stream}"

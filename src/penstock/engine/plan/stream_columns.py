"""Decides which columns of a source's stream are read: their names, their types, and their selected
parts.

Pure. The protocol reads a record's JSON Schema (``SchemaRole``), ``codec.json_schema`` makes
columns from it, and ``model.names`` cleans their names. Not here: what transforms make of the
columns (``transforms.chain``). Neighbours: ``engine.plan.stream_plan`` and ``engine.plan.streams``
call.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from penstock.codec.json_schema import holds_decimal, row_schema
from penstock.config import did_you_mean
from penstock.config.pipeline import Pipeline, StreamSettings
from penstock.config.reader import join
from penstock.engine.plan.nested_names import with_nested_names
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    FieldPath,
    Stream,
    SyncMode,
    default_cursor,
)
from penstock.model.names import clean_columns
from penstock.model.type_words import type_text
from penstock.model.types import (
    EXTRA,
    WHOLE_RECORD,
    DataType,
    Field,
    Kind,
    MissingColumns,
    Origin,
    RowSchema,
)
from penstock.protocols.contract import ProtocolPackage, SchemaRole
from penstock.protocols.json_schema.paths import closed_objects

_JSON = DataType(Kind.json)
_TEXT = DataType(Kind.string)  # any delete mark fits it, and every target takes it
NO_COLUMNS = MissingColumns((), False)


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """A stream's columns as they are read. ``declared``: with the source's own types. ``names``:
    original property -> cleaned column; ``nested``: names of fields inside columns
    (``engine.plan.nested_names``). ``whole``: they include the column ``WHOLE_RECORD``, since not
    every property is known. ``ignored``: paths of the source's properties that the pipeline or the
    catalog leaves out of the schema. ``narrowed``: columns whose numbers may have more digits than
    their type. ``closed``: paths of objects whose undeclared properties are never kept."""

    schema: RowSchema
    declared: RowSchema
    names: dict[str, str]
    whole: bool
    nested: dict[str, str]
    ignored: tuple[FieldPath, ...] = ()
    narrowed: tuple[str, ...] = ()
    closed: tuple[FieldPath, ...] = ()


def source_columns(
    configured: ConfiguredStream,
    settings: StreamSettings,
    rules: SchemaRole,
    *,
    named: Mapping[str, str],
    nested: Mapping[str, str] = {},
    reserved: Iterable[str],
    deleted_at: str | None = None,
    undeclared: MissingColumns = NO_COLUMNS,
) -> SourceColumns:
    """Returns the columns of a configured stream: those that it selects, and those that its key and
    its cursor need. Where its schema does not declare every property, each whole record is kept as
    JSON text, next to the declared columns. ``named``: cleaned names that earlier runs gave,
    ``nested``: to fields inside columns; ``reserved``: names that no column may have;
    ``deleted_at``: the property that marks deletes; ``undeclared``: columns of properties that
    records have and the schema does not declare. Raises ``ConfigError``, ``SchemaError``."""
    record = rules.data_type(configured.stream.json_schema)
    whole = lacks_properties(configured.stream, rules)
    if whole:
        record = _with_whole_record(record, configured, deleted_at)
    record, inner = with_nested_names(record, nested)
    declared = {f.source for f in record.fields}
    more = [] if whole else [name for name in undeclared.names if name not in declared]
    names = clean_columns((*(f.source for f in record.fields), *more), named, reserved)
    selected = {p[0] for p in (*configured.primary_key, configured.cursor_field) if p}
    selected |= configured.selected(f.source for f in record.fields)
    schema = own_types = row_schema(record, names, selected)
    typed = settings.types or {}
    if whole:
        typed = {name: type_ for name, type_ in typed.items() if name != WHOLE_RECORD}
    schema = _pruned(_retyped(schema, typed) if typed else schema, configured)
    merges = configured.destination_sync_mode is DestinationSyncMode.append_dedup
    if merges and deleted_at is not None:
        schema = _with_whole_mark(schema, deleted_at)
    narrowed = ()
    if any(f.source not in typed and holds_decimal(f.type) for f in schema.fields):
        known = {f.source for f in schema.fields} - typed.keys()
        narrowed = tuple(n for n in rules.narrowed(configured.stream.json_schema) if n in known)
    kept_whole = whole and WHOLE_RECORD in selected
    extra = undeclared.extra and not whole
    marks = {deleted_at} if merges else set[str | None]()
    own = [(names[n], n, _TEXT if n in marks else _JSON) for n in more]
    schema = _with_undeclared(schema, own, extra, whole=kept_whole)
    read = {(f.source,) for f in schema.fields}
    ignored = [*_left_out(record.fields, schema.fields)]
    ignored += (path for path in configured.unselected if path not in read)
    return SourceColumns(
        schema,
        own_types,
        names,
        kept_whole,
        inner,
        tuple(dict.fromkeys(ignored)),
        narrowed,
        _closed(configured),
    )


def _with_whole_mark(schema: RowSchema, mark: str) -> RowSchema:
    """Returns the schema with JSON for the property that marks deletes, where it is declared as an
    object or a list: the whole value decides whether it is a mark."""
    replace = msgspec.structs.replace
    fields = tuple(
        replace(f, type=_JSON)
        if f.source == mark and f.type.kind in (Kind.struct, Kind.array)
        else f
        for f in schema.fields
    )
    return replace(schema, fields=fields)


def undeclared_columns(schema: RowSchema) -> MissingColumns:
    """Returns the columns of ``schema`` that hold undeclared properties."""
    names = (f.source for f in schema.fields if f.origin is Origin.undeclared and f.name != EXTRA)
    return MissingColumns(tuple(names), schema.extra is not None)


def _with_undeclared(
    schema: RowSchema, own: Sequence[tuple[str, str, DataType]], extra: bool, *, whole: bool
) -> RowSchema:
    """Returns the schema with columns for undeclared properties, and with the origin of the whole
    record's column. ``own``: (column, property, type)."""
    replace = msgspec.structs.replace
    fields = [
        replace(f, origin=Origin.record) if whole and f.source == WHOLE_RECORD else f
        for f in schema.fields
    ]
    fields += (Field(name, source, kind, origin=Origin.undeclared) for name, source, kind in own)
    if extra:
        taken = {f.source for f in fields}
        source = next(s for n in range(len(taken) + 1) if (s := EXTRA + "_" * n) not in taken)
        fields.append(Field(EXTRA, source, _JSON, origin=Origin.undeclared))
    return replace(schema, fields=tuple(fields))


def _closed(configured: ConfiguredStream) -> tuple[FieldPath, ...]:
    """Returns the paths of objects whose undeclared properties are never kept: objects whose
    properties the pipeline lists, and objects whose schema allows no others."""
    listed = [] if configured.columns is None else [()]
    listed += [path[:end] for path in configured.nested for end in range(1, len(path))]
    return tuple(dict.fromkeys((*listed, *closed_objects(configured.stream.json_schema))))


def lacks_properties(stream: Stream, rules: SchemaRole) -> bool:
    """Whether records may have properties that the stream's schema does not declare and that must
    be kept: the schema declares none, or it replaced one that declared none."""
    return stream.partial or not rules.data_type(stream.json_schema).fields


def _with_whole_record(
    record: DataType, configured: ConfiguredStream, deleted_at: str | None
) -> DataType:
    """Returns the type of a record with the whole record as a column before its declared
    properties. After them it has, as JSON, the properties that the user lists and those by which
    rows are merged. Appended rows need none of the latter: the whole record has them."""
    needed = [*(configured.columns or ())]
    if configured.destination_sync_mode is not DestinationSyncMode.append:
        needed += [path[0] for path in configured.primary_key]
    if configured.destination_sync_mode is DestinationSyncMode.append_dedup:
        cdc = configured.sync_mode is SyncMode.cdc
        needed += ([deleted_at] if deleted_at else []) if cdc else default_cursor(configured)[:1]
    declared = {f.source: f.type for f in record.fields}
    types = {WHOLE_RECORD: _JSON, **{n: t for n, t in declared.items() if n != WHOLE_RECORD}}
    for name in needed:
        types.setdefault(name, _JSON)
    return DataType(Kind.struct, fields=tuple(Field(n, n, t) for n, t in types.items()))


def unknown_columns(
    pipeline: Pipeline, chosen: Sequence[Stream], package: ProtocolPackage
) -> list[str]:
    """Returns a problem for each column with a type in the pipeline that no stream of its entry
    has. An entry for several streams may name columns that only some have; a stream without known
    properties may have any."""
    meant = [("source.defaults", pipeline.source.defaults, list(chosen))]
    for index, entry in enumerate(pipeline.source.streams or ()):
        of = [s for s in chosen if entry.matches(s.id)]
        meant.append((f"source.streams[{index}]", entry, of))
    problems: list[str] = []
    for path, settings, streams in meant:
        if not settings.types or not streams:
            continue
        records = [package.schema.data_type(s.json_schema).fields for s in streams]
        known = dict.fromkeys(f.source for fields in records for f in fields)
        if not all(records):
            continue
        whose = f"stream {streams[0].id}" if len(streams) == 1 else f"{len(streams)} streams"
        for name in settings.types.keys() - known.keys():
            at = pipeline.position(join(f"{path}.types", name))
            problems.append(
                (f"{at}: " if at else "")
                + f"{path}.types: {whose}: unknown column {name!r}; "
                + did_you_mean.hint(
                    name, known, "its columns" if len(streams) == 1 else "their columns"
                )
            )
    return sorted(problems)


def _left_out(
    given: Sequence[Field], read: Sequence[Field], at: FieldPath = ()
) -> Iterator[FieldPath]:
    """Yields the paths of properties that are not read. Skips lists on the path."""
    types = {f.source: f.type for f in read}
    for field in given:
        path = (*at, field.source)
        if field.source not in types:
            yield path
        elif inside := _item(types[field.source]).fields:
            yield from _left_out(_item(field.type).fields, inside, path)


def _item(type_: DataType) -> DataType:
    while type_.kind is Kind.array and type_.item is not None:
        type_ = type_.item
    return type_


def _retyped(schema: RowSchema, types: Mapping[str, DataType]) -> RowSchema:
    """Returns the schema with the user's types for the columns with these original names."""
    replace = msgspec.structs.replace
    fields = (replace(f, type=types.get(f.source, f.type)) for f in schema.fields)
    return replace(schema, fields=tuple(fields))


def _pruned(schema: RowSchema, configured: ConfiguredStream) -> RowSchema:
    """Returns the schema with only the selected parts of partly selected columns. Raises
    ``ConfigError``."""
    replace = msgspec.structs.replace
    fields: list[Field] = []
    for field in schema.fields:
        paths = [path for path in configured.nested if path[0] == field.source]
        missing = next((path for path in paths if _inside(field.type, path[1:]) is None), None)
        if missing is not None and not configured.stream.assumed:
            raise ConfigError(
                f"columns: {'.'.join(missing)} cannot be kept alone, because the source's schema "
                f"does not name the fields around it ({field.source} is {type_text(field.type)})",
                hint=f"list {field.source}",
            )
        if paths and missing is None:
            field = replace(field, type=_parts(field.type, [path[1:] for path in paths]))
        fields.append(field)
    return replace(schema, fields=tuple(fields))


def _inside(type_: DataType, path: FieldPath) -> DataType | None:
    """Returns the type at a path of properties; None: the type has no such path."""
    for step in path:
        found = next((f.type for f in type_.fields if f.source == step), None)
        if found is None:
            return None
        type_ = found
    return type_


def _parts(type_: DataType, paths: Sequence[FieldPath]) -> DataType:
    """Returns an object type with only these properties."""
    if () in paths:
        return type_
    replace = msgspec.structs.replace
    kept: list[Field] = []
    for field in type_.fields:
        below = [path[1:] for path in paths if path[0] == field.source]
        if below:
            kept.append(replace(field, type=_parts(field.type, below)))
    return replace(type_, fields=tuple(kept))

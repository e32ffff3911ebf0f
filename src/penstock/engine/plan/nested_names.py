"""Gives the fields of objects, also inside lists, the names that they had in earlier runs.

A property keeps its field's name though it goes away and comes back, and no other property of its
object ever gets that name: two properties whose cleaned names are equal (``zip code``,
``zip_code``) stay apart, whichever came first. A new property has the name that its protocol's rule
gives it (``codec.json_schema``), where no other has it. Not here: names of columns
(``model.names.clean_columns``). Neighbours: ``engine.plan.stream_columns`` names a stream's fields,
``store.remembered`` keeps the names."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from penstock.model.catalog import FieldPath, StreamId
from penstock.model.names import clean_columns, folded
from penstock.model.types import DataType, Field, RowSchema
from penstock.store.contract import Store
from penstock.store.remembered import Remembered


def nested_key(path: FieldPath) -> str:
    """Returns the stored text for a path of original names, the column's first. Skips lists on the
    path."""
    return msgspec.json.encode(path).decode()


def with_nested_names(
    record: DataType, known: Mapping[str, str]
) -> tuple[DataType, dict[str, str]]:
    """Returns the type of a record with the names of its fields' inner fields, and all names so
    far by :func:`nested_key`. ``known``: those of earlier runs."""
    taken: dict[FieldPath, dict[str, str]] = {}
    for key, name in known.items():
        *above, source = msgspec.json.decode(key, type=FieldPath)
        taken.setdefault(tuple(above), {})[source] = name
    found = dict(known)

    def named(type_: DataType, path: FieldPath) -> DataType:
        if type_.item is not None:
            return msgspec.structs.replace(type_, item=named(type_.item, path))
        if not type_.fields:
            return type_
        names = _names(type_.fields, taken.get(path, {}))
        fields: list[Field] = []
        for field in type_.fields:
            below = (*path, field.source)
            found[nested_key(below)] = names[field.source]
            inner = named(field.type, below)
            fields.append(msgspec.structs.replace(field, name=names[field.source], type=inner))
        return msgspec.structs.replace(type_, fields=tuple(fields))

    columns = [msgspec.structs.replace(f, type=named(f.type, (f.source,))) for f in record.fields]
    return msgspec.structs.replace(record, fields=tuple(columns)), found


def _names(fields: tuple[Field, ...], taken: Mapping[str, str]) -> dict[str, str]:
    used = {folded(name) for name in taken.values()}
    free = {
        f.source: f.name for f in fields if f.source not in taken and folded(f.name) not in used
    }
    return clean_columns((f.source for f in fields), {**taken, **free})


def nested_so_far(
    store: Store, pipeline: str, streams: Sequence[StreamId], known: Remembered
) -> dict[StreamId, dict[str, str]]:
    """Returns the stored names of the streams. For streams without any, returns the names in the
    schemas of earlier runs, which did not store them. Not for streams whose stored schemas are the
    output of transforms."""
    found = {stream: known.nested[stream] for stream in streams if stream in known.nested}
    unnamed = [stream for stream in streams if stream not in found and stream in known.columns]
    for stream, newest in store.newest_schemas(pipeline, unnamed).items():
        inside = (True for column in newest.fields for _ in _inside(column.type, ()))
        if newest.version > 1 or any(inside):  # an older version may have dropped objects
            found[stream] = names_so_far(store.schemas(pipeline, stream))
    return found


def names_so_far(schemas: Mapping[int, RowSchema]) -> dict[str, str]:
    """Returns the names in the stored ``schemas`` of a stream, by version: a newer version's first,
    and no name of an object twice."""
    found: dict[str, str] = {}
    used: dict[FieldPath, set[str]] = {}
    for version in sorted(schemas, reverse=True):
        for column in schemas[version].fields:
            for path, name in _inside(column.type, (column.source,)):
                names = used.setdefault(path[:-1], set())
                if nested_key(path) not in found and folded(name) not in names:
                    found[nested_key(path)] = name
                    names.add(folded(name))
    return found


def _inside(type_: DataType, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if type_.item is not None:
        yield from _inside(type_.item, path)
    for field in type_.fields:
        below = (*path, field.source)
        yield below, field.name
        yield from _inside(field.type, below)

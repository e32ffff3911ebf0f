"""Chooses the destination's stream that a stream of ours is written to, and checks that it fits.

Pure. Not here: asking for them (``probe``), rows (``row_check``).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.config.did_you_mean import hint
from penstock.errors import ConfigError, DestinationError
from penstock.model.catalog import Change, ConnectorSpec, StreamId
from penstock.model.types import RowSchema
from penstock.protocols.json_schema.config_check import validate_config
from penstock.protocols.syncmaven.messages import StreamSpec, StreamSpecs
from penstock.protocols.syncmaven.row_check import names, row_type_fault
from penstock.protocols.syncmaven.zod import unreadable
from penstock.protocols.writing import WriteStream

_NO_MARK = ""  # options are no credentials


def chosen(stream: WriteStream, specs: StreamSpecs) -> StreamSpec:
    """The one that the pipeline names (``destination.stream``; the empty text: the default one),
    else the one of the stream's own name, else the default one; of a destination that names none,
    one of the name that is wanted. Raises ``DestinationError``."""
    by_name = {s.name: s for s in specs.streams}
    wanted = stream.into or ("" if stream.into == "" else stream.target.name)
    if specs.unnamed:
        return StreamSpec(wanted or stream.target.name)
    found = by_name.get(wanted)
    if found is None and not stream.into:
        found = by_name.get(specs.default or "")
    if found is None:
        names = list(by_name)
        what = f"the destination has no stream {wanted!r}"
        advice = f"{hint(wanted, names)}; name one with --destination-stream (destination.stream)"
        raise DestinationError(
            what if names else "the destination has no streams",
            code="destination.unknown_stream",
            hint=advice if names else "it answers describe-streams with an empty list",
            stream=str(stream.id),
        )
    return found


def names_all(specs: StreamSpecs, streams: Sequence[WriteStream]) -> bool:
    """Whether each of these streams is written to one that goes by the wanted name; else it is
    written to the default one, or to none."""
    names = {s.name for s in specs.streams}
    return specs.unnamed or all(
        (s.target.name if s.into is None else s.into or specs.default) in names for s in streams
    )


class StreamChoice:
    """Says which of the destination's streams each stream of ours is written to: no two to one."""

    def __init__(self, specs: StreamSpecs) -> None:
        self._specs = specs
        self._taken: dict[str, StreamId] = {}  # by the destination's stream

    def spec_of(self, stream: WriteStream) -> StreamSpec:
        """The one of :func:`chosen`, which from now on is this stream's. Raises
        ``DestinationError``, also where it is another's."""
        spec = chosen(stream, self._specs)
        first = self._taken.setdefault(spec.name, stream.id)
        if first != stream.id:
            raise DestinationError(
                f"{first} and {stream.id} would both be written to {spec.name!r}",
                code="destination.same_stream",
                hint="choose one with --streams, or give each a pipeline of its own; rows of the"
                " other that an earlier run has read are written by a run that chooses that one",
                stream=str(stream.id),
            )
        return spec


def problems(specs: StreamSpecs, streams: Sequence[WriteStream]) -> list[str]:
    """Why these streams cannot be written so, each a sentence."""
    found: list[str] = []
    choice = StreamChoice(specs)
    for stream in streams:
        try:
            spec = choice.spec_of(stream)
        except DestinationError as e:
            found.append(f"stream {stream.id}: {e.message}; {e.hint}")
            continue
        try:
            check_removals(spec, stream)
        except DestinationError as e:
            found.append(f"{e.message}; {e.hint}")
        found += [f"stream {stream.id}: {text}" for text in _cast_failures(spec, stream)]
    return found


def notes(specs: StreamSpecs, streams: Sequence[WriteStream]) -> Iterator[str]:
    """What a user should know of these streams before they are written, each a sentence."""
    for stream in streams:
        try:
            spec = chosen(stream, specs)
        except DestinationError:
            continue  # a problem
        if spec.zod:
            yield unreadable(f"{stream.id}: {spec.name!r} describes its rows or options")
        if stream.options and spec.options is None:
            yield (
                f"{stream.id}: destination.options is given to {spec.name!r} unchanged, since the "
                "destination publishes no schema of its options"
            )
        field = unknown_mark(spec, stream)
        if field is not None:
            yield (
                f"{stream.id}: rows that are gone at the source are sent with the time in"
                f" {field!r}, which the row type of {spec.name!r} does not name: a destination that"
                " does not know it writes them as rows that are there"
            )


def unknown_mark(spec: StreamSpec, stream: WriteStream) -> str | None:
    """The column that says that a row is gone, where neither the destination's row type names it
    nor the user gives it a field; None: there is none such."""
    name = stream.deleted_at
    return None if name is None or stream.mapping or names(spec.row_type, name) else name


def check_removals(spec: StreamSpec, stream: WriteStream) -> None:
    """Raises ``DestinationError`` where the stream sends rows that are gone (mode mirror) and the
    destination would take them for others."""
    field = unknown_mark(spec, stream)
    if field is not None and Change.removed in stream.configured.sends:
        raise DestinationError(
            f"stream {stream.id}: its rows that are gone are sent with the time in {field!r}, which"
            f" the row type of {spec.name!r} does not name: the destination would write them as"
            " rows that are there",
            code="destination.removals",
            hint="choose mode upsert, or name the field by which the destination knows removals"
            " (destination.mapping)",
            stream=str(stream.id),
        )


def mapped(schema: RowSchema, mapping: Mapping[str, str]) -> RowSchema:
    """The columns as the destination is given them: those of the mapping under its names (one that
    the schema lacks is left out); without a mapping all of them."""
    if not mapping:
        return schema
    known = {f.source: f for f in schema.fields}
    fields = tuple(
        msgspec.structs.replace(known[column], source=name)
        for name, column in mapping.items()
        if column in known
    )
    return msgspec.structs.replace(schema, fields=fields)


def option_problems(spec: StreamSpec, options: dict[str, Any]) -> list[str]:
    """What its schema (draft-07) says against the options."""
    if spec.options is None:  # many connectors read options of which they publish no schema
        return []
    schema = ConnectorSpec(protocol="", config_schema=spec.options)
    try:
        validate_config(schema, options, _NO_MARK)
    except ConfigError as e:
        return [f"destination.options{p.removeprefix('config')}" for p in e.problems]
    return []


def _unknown_columns(stream: WriteStream) -> list[str]:
    if stream.configured.stream.assumed:
        return []  # its columns are known once Spark has read the query
    known = [f.source for f in stream.schemas[stream.latest].fields]
    return [
        f"destination.mapping.{name}: there is no column {column!r}; {hint(column, known)}"
        for name, column in stream.mapping.items()
        if known and column not in known
    ]


def _cast_failures(spec: StreamSpec, stream: WriteStream) -> list[str]:
    found = [*option_problems(spec, stream.options), *_unknown_columns(stream)]
    row_type = spec.row_type
    if row_type is None:
        return found
    fault = row_type_fault(row_type)
    if fault is not None:
        return [*found, f"the row type of {spec.name!r} {fault}"]
    fields = mapped(stream.schemas[stream.latest], stream.mapping).fields
    required = row_type.get("required")
    named = {f.source for f in fields}
    missing = [n for n in required if n not in named] if isinstance(required, list) else []
    if missing and fields and not stream.configured.stream.assumed:
        found.append(f"{spec.name!r} requires {', '.join(map(str, missing))}, which it lacks")
    return found

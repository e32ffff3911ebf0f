"""Chooses the destination's stream for each of our streams, and checks that it fits.

Pure. Not here: requesting the specs (``probe``), rows (``row_check``).
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
    """Returns the spec that the pipeline names (``destination.stream``; the empty text: the default
    one), else the one with the stream's own name, else the default one. For a destination that
    names no streams, returns one with the wanted name. Raises ``DestinationError``."""
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
    """Returns whether the destination has each stream by its wanted name; otherwise a stream is
    written to the default one, or to none."""
    names = {s.name for s in specs.streams}
    return specs.unnamed or all(
        (s.target.name if s.into is None else s.into or specs.default) in names for s in streams
    )


class StreamChoice:
    """Maps each of our streams to a stream of the destination: never two to the same one."""

    def __init__(self, specs: StreamSpecs) -> None:
        self._specs = specs
        self._taken: dict[str, StreamId] = {}  # by the destination's stream

    def spec_of(self, stream: WriteStream) -> StreamSpec:
        """Returns the spec from :func:`chosen`, which is reserved for this stream from now on.
        Raises ``DestinationError``, also where it belongs to another stream."""
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
    """Returns why these streams cannot be written as configured, each a sentence."""
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
    """Yields what a user should know about these streams before the write, each a sentence."""
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
    """Returns the column that marks a row as removed, where neither the destination's row type
    names it nor the user gives it a field; None: there is none."""
    name = stream.deleted_at
    return None if name is None or stream.mapping or names(spec.row_type, name) else name


def check_removals(spec: StreamSpec, stream: WriteStream) -> None:
    """Raises ``DestinationError`` where the stream sends removed rows (mode mirror) and the
    destination would take them for present ones."""
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
    """Returns the columns as the destination gets them: those of the mapping under its names (one
    that the schema lacks is omitted); without a mapping all of them."""
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
    """Validates the options against its schema (draft-07)."""
    if spec.options is None:  # many connectors read options without a published schema
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

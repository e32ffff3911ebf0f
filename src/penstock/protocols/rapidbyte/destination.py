"""Implements the destination role with a WebAssembly component: problems and notes of a plan, and
the write.

Not here: runs (``rapidbyte.write.writer``), frames (``rapidbyte.write.frame_encoder``), acks
(``rapidbyte.write.answers``, ``rapidbyte.write.ack_tracker``). Source: the protocol, sections 3.2,
5, 6, 7 and 9.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.model.catalog import ConnectorSpec
from penstock.model.types import Kind
from penstock.protocols.contract import FixedSpec
from penstock.protocols.rapidbyte.declared.manifest import (
    ComponentManifest,
    mode_problems,
    role_problems,
)
from penstock.protocols.rapidbyte.guest.component import ComponentRole, open_component
from penstock.protocols.rapidbyte.spec import SPEC
from penstock.protocols.rapidbyte.write.write_context import (
    WriteSettings,
    replaces,
    sent_schema,
    table_name,
    write_mode,
)
from penstock.protocols.rapidbyte.write.writer import Writer
from penstock.protocols.writing import Answer, Feed, WriteRequest, WriteStream
from penstock.runtimes.wasm.component import ComponentRuntime

_NESTED = (Kind.array, Kind.struct)
_REPEATED = {
    "append": "delivery is at least once; append: a kill repeats at most the rows since the last"
    " checkpoint of the destination, which are sent again",
    "upsert": "delivery is at least once; upsert repeats nothing: rows that are sent again become"
    " the same rows, by their key",
    "replace": "delivery is at least once; replace repeats nothing: after a kill the whole is sent"
    " again, in place of what came before",
}
"""The note on which rows a killed run may repeat, by write mode."""


class RapidbyteDestination(FixedSpec, ComponentRole):
    """Writes to a component (``contract.DestinationRole`` and
    ``connection.DestinationConversation`` of ``protocols``)."""

    role = "destination"
    described_once = False

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, ComponentManifest)
        problems = role_problems(manifest, "destination") if manifest is not None else []
        by_table: dict[str, WriteStream] = {}
        for stream in streams:
            of_stream = _mode_problems(manifest, stream)
            other = by_table.setdefault(table_name(stream.target), stream)
            if other is not stream:
                of_stream.append(
                    f"it and stream {other.id} are both {table_name(stream.target)!r} at the"
                    " destination: give one of them a prefix or another namespace"
                )
            problems += [f"stream {stream.id}: {text}" for text in of_stream]
        return problems

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        modes = {write_mode(s) for s in streams}
        notes = [
            *(text for mode, text in _REPEATED.items() if mode in modes),
            "columns have the names that tables show, and in a v4 file the source's own; a"
            " namespace is the beginning of a stream's name (`namespace.name`), as the protocol has"
            " none",
        ]
        foreign = source_protocol != SPEC.name
        return [*notes, *(n for s in streams for n in _stream_notes(s, foreign=foreign))]

    def write(
        self, runtime: ComponentRuntime, request: WriteRequest, feed: Iterator[Feed]
    ) -> Iterator[Answer]:
        """See ``DestinationConversation.write``. A stream that fails gives an ``Error`` with its
        name while the others go on, and the exit code is 1 at the end. Exceeded timeouts and
        violations of the protocol give an ``Error`` with a ``code`` (``destination.heartbeat``,
        ``destination.timeout``, ``destination.ended_early``, ``destination.incomplete``,
        ``destination.split``)."""
        yield from Writer(WriteSettings.of(open_component(runtime), request), request).answers(feed)


def _mode_problems(manifest: ComponentManifest | None, stream: WriteStream) -> list[str]:
    mode, key = write_mode(stream), stream.configured.primary_key
    problems = [] if manifest is None else mode_problems(manifest, "destination", write_mode=mode)
    if mode == "upsert" and stream.configured.replaces:
        problems.append(
            "a write replaces rows or merges them, not both: use full_refresh_overwrite or upsert"
        )
    if mode == "upsert" and not key:
        problems.append("append_dedup (upsert) needs a primary key")
    if mode == "upsert" and any(len(path) > 1 for path in key):
        shown = ", ".join(".".join(path) for path in key)
        problems.append(f"its primary key {shown} is nested: upsert takes columns only")
    return problems


def _stream_notes(stream: WriteStream, *, foreign: bool) -> Iterator[str]:
    """Yields the notes on one stream. ``foreign``: the source is not a component, whose frames have
    types of their own."""
    kinds = {f.type.kind for f in sent_schema(stream, stream.latest).fields}
    if kinds & set(_NESTED):
        yield f"{stream.id}: lists and objects are given as JSON text"
    if Kind.decimal in kinds:
        yield (
            f"{stream.id}: decimals are given as Decimal128, and to dest-postgres, which refuses"
            " them, as text with all their digits"
        )
    if Kind.timestamp in kinds and foreign:
        yield f"{stream.id}: timestamps are given in UTC, to the microsecond, without a time zone"
    if kinds & {Kind.time, Kind.time_tz}:
        yield f"{stream.id}: times of day are given as text"
    if replaces(stream):
        yield (
            f"{stream.id}: whether the old rows stay until the new ones are complete depends on "
            "the destination; nothing is acknowledged before its run succeeds"
        )

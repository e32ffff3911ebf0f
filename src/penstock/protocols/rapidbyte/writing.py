"""The destination role: what the engine asks of a destination, of a WebAssembly component.

Not here: how streams become runs (``writer``), rows frames (``outgoing``), words acks
(``hearing``, ``acks``). Source: the protocol, sections 3.2, 5, 6, 7 and 9.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from penstock.errors import SourceError
from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.types import Kind
from penstock.protocols.contract import (
    Answer,
    EventSink,
    Feed,
    WriteRequest,
    WriteStream,
)
from penstock.protocols.feeding import of_destination
from penstock.protocols.rapidbyte import destination
from penstock.protocols.rapidbyte.answers import line, result_of, spec_of
from penstock.protocols.rapidbyte.manifest import Manifest, mode_problems, role_problems
from penstock.protocols.rapidbyte.patience import LONGEST_CHECK, Within
from penstock.protocols.rapidbyte.settings import opened
from penstock.protocols.rapidbyte.terms import Terms, replaces, table_name, write_mode
from penstock.protocols.rapidbyte.writer import Writer
from penstock.runtimes.contract import Runtime, Timeouts

A = TypeVar("A")
_NESTED = (Kind.array, Kind.struct)
_REPEATED = {
    "append": "delivery is at least once; append: a kill repeats at most the rows since the last"
    " checkpoint of the destination, which are sent again",
    "upsert": "delivery is at least once; upsert repeats nothing: rows that are sent again become"
    " the same rows, by their key",
    "replace": "delivery is at least once; replace repeats nothing: after a kill the whole is sent"
    " again, in place of what came before",
}
"""What a kill may repeat, by write mode."""


class RapidbyteDestination:
    """``DestinationRole`` of ``protocols.contract``."""

    told_once = False

    def spec(self, runtime: Runtime, timeouts: Timeouts, log: EventSink) -> ConnectorSpec:
        return spec_of(_asked(lambda: opened(runtime)).found, log)

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: Timeouts, log: EventSink
    ) -> CheckResult:
        stage = _asked(lambda: opened(runtime)).stage("destination", config, timeouts)
        within = Within.of(timeouts, LONGEST_CHECK)
        report = destination.check(stage, lambda told: log(line(told)), within)
        return result_of(report, log)

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        raw = spec.abilities.get("manifest")
        manifest = None if raw is None else msgspec.convert(raw, Manifest)
        found = role_problems(manifest, "destination") if manifest is not None else []
        named: dict[str, WriteStream] = {}
        for stream in streams:
            said = _mode_problems(manifest, stream)
            other = named.setdefault(table_name(stream.target), stream)
            if other is not stream:
                said.append(
                    f"it and stream {other.id} are both {table_name(stream.target)!r} at the"
                    " destination: give one of them a prefix or another namespace"
                )
            found += [f"stream {stream.id}: {text}" for text in said]
        return found

    def fidelity(self, source_protocol: str, streams: Sequence[WriteStream]) -> list[str]:
        modes = {write_mode(s) for s in streams}
        notes = [
            *(text for mode, text in _REPEATED.items() if mode in modes),
            "columns have the names that tables show; a namespace is the beginning of a stream's"
            " name (`namespace.name`), as the protocol has none",
        ]
        return [*notes, *(n for s in streams for n in _stream_notes(s))]

    def write(
        self, runtime: Runtime, request: WriteRequest, feed: Iterator[Feed]
    ) -> Iterator[Answer]:
        """See ``DestinationRole.write``. A stream that fails is an ``Error`` with its name, and the
        others go on; then the exit code is 1. Limits and broken rules come as an ``Error`` whose
        ``raw`` has its ``code`` (``destination.heartbeat``, ``destination.timeout``,
        ``destination.ended_early``, ``destination.incomplete``, ``destination.split``)."""
        what = _asked(lambda: opened(runtime))
        yield from Writer(Terms.of(what, request), request).answers(feed)


def _asked(question: Callable[[], A]) -> A:
    try:
        return question()
    except SourceError as e:  # a runtime's, which knows no roles
        raise of_destination(e) from None


def _mode_problems(manifest: Manifest | None, stream: WriteStream) -> list[str]:
    mode, key = write_mode(stream), stream.configured.primary_key
    found = [] if manifest is None else mode_problems(manifest, "destination", write_mode=mode)
    if mode == "upsert" and not key:
        found.append("append_dedup (upsert) needs a primary key")
    if mode == "upsert" and any(len(path) > 1 for path in key):
        shown = ", ".join(".".join(path) for path in key)
        found.append(f"its primary key {shown} is nested: upsert takes columns only")
    return found


def _stream_notes(stream: WriteStream) -> Iterator[str]:
    kinds = {f.type.kind for f in stream.schemas[stream.latest].fields}
    if kinds & set(_NESTED):
        yield f"{stream.id}: lists and objects are given as JSON text"
    if Kind.decimal in kinds:
        yield (
            f"{stream.id}: decimals are given as Decimal128, and to dest-postgres, which refuses"
            " them, as text with all their digits"
        )
    if Kind.timestamp in kinds:
        yield f"{stream.id}: timestamps are given in UTC, to the microsecond, without a time zone"
    if kinds & {Kind.time, Kind.time_tz}:
        yield f"{stream.id}: times of day are given as text"
    if replaces(stream):
        yield (
            f"{stream.id}: whether the old rows stay until the new ones are complete is the"
            " destination's doing; nothing is acknowledged before its run has ended well"
        )

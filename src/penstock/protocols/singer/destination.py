"""Implements the destination role with a Singer target: spec, check, write.

Not here: the lines that are sent (``outgoing``), the target's output (``target_output``,
``state_echoes``), threads and timeouts (``protocols.stdio.write``), commands that answer once
(``probe``). Source: specification, Targets; reference §0, §1.1, §1.8.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.model.catalog import CheckResult, ConnectorSpec, DestinationSyncMode
from penstock.model.events import ConnectorExited, Error, LogEvent
from penstock.model.types import DataType, Kind
from penstock.protocols.connection import EventSink
from penstock.protocols.contract import FixedSpec
from penstock.protocols.singer.command_line import (
    abilities_of,
    about_of,
    config_schema,
    last_words,
    unknown_schema,
)
from penstock.protocols.singer.messages import About
from penstock.protocols.singer.outgoing import (
    AIRBYTES_DELETED_AT,
    Outgoing,
    key_properties,
    name_of,
    with_deletions,
)
from penstock.protocols.singer.outgoing_schema import DECIMAL_FORMAT
from penstock.protocols.singer.probe import ask
from penstock.protocols.singer.schema import DELETED_AT
from penstock.protocols.singer.state_echoes import marks_for
from penstock.protocols.singer.target_output import TargetOutput
from penstock.protocols.stdio.write import converse
from penstock.protocols.writing import Acks, Answer, Feed, WriteRequest, WriteStream
from penstock.runtimes.contract import Argument, PrivateFile, Runtime, RunTimeouts

PROTOCOL = "singer"
ACTIVATE_VERSION = "activate-version"
"""The capability's name in ``--about``."""
_LAST_LINES = 3
_SHOWN = 2000  # characters


class SingerTarget(FixedSpec):
    """Writes to a target (``contract.DestinationRole`` and
    ``connection.DestinationConversation`` of ``protocols``)."""

    described_once = False

    def spec(self, runtime: Runtime, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        """Returns the spec from ``--about``; a target without that option accepts any
        configuration."""
        said = _about(runtime, timeouts)
        if said is None:
            log(
                LogEvent(
                    "INFO", "the target does not describe itself (--about): any config is accepted"
                )
            )
            return ConnectorSpec(protocol=PROTOCOL, config_schema=unknown_schema())
        return ConnectorSpec(
            protocol=PROTOCOL,
            config_schema=config_schema(said.settings) if said.settings else unknown_schema(),
            abilities=abilities_of(said),
        )

    def check(
        self, runtime: Runtime, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        """Runs the target without input, which writes nothing. A success proves that it starts and
        accepts its configuration, but not that it reaches its database, unless it connects at
        once."""
        said = ask(runtime, _arguments(config), timeouts, role="destination")
        if said.code == 0:
            text = "it starts and accepts its configuration; only a run shows whether it can write"
            return CheckResult(True, text)
        words = _last_words(said.stderr_tail) or "it wrote nothing to stderr"
        if said.code is None:
            return CheckResult(False, f"without any input it does not end: {words}")
        return CheckResult(False, f"without any input it exits with code {said.code}: {words}")

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        found: list[str] = []
        names: dict[str, WriteStream] = {}
        for stream in streams:
            first = names.setdefault(name_of(stream.target), stream)
            if first is not stream:
                found.append(
                    f"streams {first.id} and {stream.id} would both be {name_of(stream.target)!r}"
                    " at the target: set a namespace or a prefix that keeps them apart"
                )
            found += _key_problems(stream)
        return found

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        notes = [
            "delivery is at least once: rows after the last state that the target gave back are"
            " sent again by the next run",
            "a property that a record lacks is sent as null",
        ]
        if source_protocol != PROTOCOL:
            notes.append(
                f"states of the {source_protocol} source stay here: the target is given numbers in"
                " their place"
            )
        return [*notes, *(n for s in streams for n in _stream_notes(s, source_protocol))]

    def write(
        self, runtime: Runtime, request: WriteRequest, feed: Iterator[Feed]
    ) -> Iterator[Answer]:
        """See ``DestinationConversation.write``. A failure comes as an ``Error`` with a ``code``:
        ``destination.exited`` with the target's last lines, or one of ``protocols.stdio.write``.
        Exit code 0 after the whole input acknowledges everything where every state was echoed, or
        where ``acks`` is ``at_end``."""
        at_end = request.acks is Acks.at_end
        outgoing: Outgoing

        marks = marks_for(
            request.source_protocol,
            lambda stream: outgoing.name(stream),
            strict=request.acks is Acks.strict,
        )
        outgoing = Outgoing(request.streams, marks, lambda: _takes_versions(runtime, request))
        output = TargetOutput(None if at_end else marks)
        arguments = _arguments(request.config)
        chunks = outgoing.chunks(feed)
        answers = converse(runtime, arguments, request.timeouts, request.tick, chunks, output)
        yield from _with_the_cause(answers)


def _takes_versions(runtime: Runtime, request: WriteRequest) -> bool:
    option = request.options.get("activate_version")
    if option is not None:
        return option == "always"
    said = _about(runtime, request.timeouts)
    return said is not None and ACTIVATE_VERSION in said.capabilities


def _about(runtime: Runtime, timeouts: RunTimeouts) -> About | None:
    """Returns the target's ``--about``; None: it has none."""
    said = ask(runtime, ["--about", "--format=json"], timeouts, role="destination")
    return about_of(said.text) if said.code == 0 else None


def _last_words(stderr_tail: str) -> str:
    """Returns the end of stderr to show: its CRITICAL line or exception, else its last lines."""
    lines = [line for line in stderr_tail.splitlines() if line.strip()]
    words = last_words(stderr_tail) or "\n".join(lines[-_LAST_LINES:])
    return words[-_SHOWN:]


def _arguments(config: dict[str, Any]) -> list[Argument]:
    return ["--config", PrivateFile("config.json", msgspec.json.encode(config))]


def _with_the_cause(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Yields the answers; before a failed exit without an ``Error`` also an ``Error`` with the
    reason."""
    failed = False
    for answer in answers:
        failed = failed or isinstance(answer, Error)
        if isinstance(answer, ConnectorExited) and not failed and answer.code != 0:
            yield _died(answer)
        yield answer


def _died(exited: ConnectorExited) -> Error:
    words = _last_words(exited.stderr_tail)
    how = f"exited with code {exited.code}"
    if exited.code is not None and exited.code < 0:
        how = f"was killed by signal {-exited.code}"
    said = f": {words}" if words else " and wrote nothing to stderr"
    return Error(f"the target {how}{said}", code="destination.exited")


def _key_problems(stream: WriteStream) -> Iterator[str]:
    configured = stream.configured
    dedup = configured.destination_sync_mode is DestinationSyncMode.append_dedup
    if dedup and not configured.primary_key:
        yield f"stream {stream.id}: append_dedup needs a primary key"
    nested = [path for path in configured.primary_key if len(path) != 1]
    if nested and key_properties(stream):
        yield (
            f"stream {stream.id}: a Singer target takes top-level properties as its key, not"
            f" {'.'.join(nested[0])}"
        )
        return
    known = {f.source for f in stream.schemas[stream.latest].fields}
    missing = [name for name in key_properties(stream) if name not in known]
    if missing:
        yield f"stream {stream.id}: its key {', '.join(missing)} is not a property of its schema"


def _stream_notes(stream: WriteStream, source_protocol: str) -> Iterator[str]:
    configured, schema = stream.configured, stream.schemas[stream.latest]
    kinds = {k for f in schema.fields for k in _kinds(f.type)}
    if stream.target.namespace is not None:
        yield f"{stream.id}: its name at the target is {name_of(stream.target)}"
    if Kind.decimal in kinds:
        yield (
            f"{stream.id}: decimals are sent as text ({DECIMAL_FORMAT}) with all their digits; a"
            " target that does not know the format stores text"
        )
    if source_protocol != PROTOCOL or kinds - {Kind.string}:
        yield (
            f"{stream.id}: which values are null because they did not fit their type, or were"
            " changed by the source, is not passed on: a Singer record has no list of changes"
        )
    if Kind.timestamp in kinds:
        yield f"{stream.id}: timestamps are sent in UTC, to the microsecond"
    if Kind.timestamp_ntz in kinds:
        yield f"{stream.id}: times without a zone stay so; a target may read them as UTC"
    if Kind.binary in kinds:
        yield f"{stream.id}: binary values are sent as base64 text"
    if Kind.json in kinds:
        yield f"{stream.id}: values of mixed types are sent unchanged; a target may refuse them"
    if with_deletions(stream, schema) is not schema:
        yield (
            f"{stream.id}: {AIRBYTES_DELETED_AT} is sent as {DELETED_AT} too; a target deletes such"
            " rows only if it is configured to (hard_delete), else it keeps them"
        )
    match configured.destination_sync_mode:
        case DestinationSyncMode.overwrite:
            yield (
                f"{stream.id}: old rows go by ACTIVATE_VERSION, once all new ones are sent; a"
                f" target without the capability {ACTIVATE_VERSION} keeps them"
            )
        case DestinationSyncMode.append if configured.primary_key:
            yield f"{stream.id}: its key is not sent, for a target merges rows of the same key"
        case DestinationSyncMode.append_dedup:
            yield f"{stream.id}: rows of the same key are merged only by a target that upserts"
        case _:
            return


def _kinds(data_type: DataType, depth: int = 0) -> Iterator[Kind]:
    yield data_type.kind
    inner = [f.type for f in data_type.fields] + ([data_type.item] if data_type.item else [])
    for one in inner if depth < 32 else []:
        yield from _kinds(one, depth + 1)

"""Implements the destination role with a Syncmaven destination: spec, check, problems and notes of
a plan, and the write.

Not here: questions (``probe``), which of its streams is written to (``stream_specs``), the write
itself (``writer``). Source: the protocol page, Destination flow; reference §1.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from penstock.errors import DestinationError
from penstock.model.catalog import CheckResult, ConnectorSpec, DestinationSyncMode, SyncMode
from penstock.model.events import LogEvent
from penstock.model.types import Kind
from penstock.protocols.connection import EventSink
from penstock.protocols.syncmaven import stream_specs
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import Roles, StreamSpecs
from penstock.protocols.syncmaven.probe import DESTINATION, ask_spec, ask_streams
from penstock.protocols.syncmaven.writer import ISOLATE_EVERY, Writer
from penstock.protocols.syncmaven.zod import unreadable
from penstock.protocols.writing import Answer, Feed, WriteRequest, WriteStream
from penstock.runtimes.contract import RunTimeouts

PROTOCOL = "syncmaven"
_ZOD = unreadable("the destination describes its credentials")


class SyncmavenDestination:
    """Writes to a destination (``contract.DestinationRole`` and
    ``connection.DestinationConversation`` of ``protocols``)."""

    described_once = False
    acks_with_states = False
    takes_undeclared = False

    def own_stream(self, spec: ConnectorSpec, stream: WriteStream) -> str | None:
        known = _known_streams(spec)
        with suppress(DestinationError):  # it has no stream of that name
            return stream.into if known is None else stream_specs.chosen(stream, known).name
        return stream.into

    def spec(self, runtime: Host, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        """Returns its credentials' schema; ``abilities`` has its roles, and its streams where it
        lists them without credentials."""
        said = ask_spec(runtime, timeouts, log, DESTINATION)
        abilities: dict[str, Any] = {"roles": list(said.roles or (Roles.destination,))}
        if said.zod:
            abilities["zod"] = True
            log(LogEvent("WARN", _ZOD))
        elif said.credentials_schema is None:
            log(
                LogEvent(
                    "WARN", "the destination has no schema of its credentials: any are accepted"
                )
            )
        try:
            streams = ask_streams(runtime, None, timeouts, log)
        except DestinationError as e:
            log(
                LogEvent(
                    "INFO", f"its streams are not known before it has credentials: {e.message}"
                )
            )
        else:
            abilities["streams"] = msgspec.to_builtins(streams)
        return ConnectorSpec(
            protocol=PROTOCOL,
            config_schema=said.credentials_schema or {},
            abilities=abilities,
        )

    def check(
        self, runtime: Host, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        """Requests its streams with these credentials: the protocol has no other check."""
        try:
            streams = ask_streams(runtime, config, timeouts, log)
        except DestinationError as e:
            if e.code != "destination.halted":
                raise
            return CheckResult(False, e.message)
        names = ", ".join(s.name for s in streams.streams)
        return CheckResult(
            True, f"it has {names or 'no streams'}; only a run shows whether it can write"
        )

    def depends_on_config(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> bool:
        """Returns whether its streams must be requested with credentials: without them it may list
        none, or others. False where each of ours is listed by its name, without a problem."""
        if Roles.destination not in spec.abilities.get("roles", []):
            return False
        known = _known_streams(spec)
        unnamed = known is None or not stream_specs.names_all(known, streams)
        return unnamed or bool(self.problems(spec, streams))

    def configured_spec(
        self,
        runtime: Host,
        spec: ConnectorSpec,
        config: dict[str, Any],
        timeouts: RunTimeouts,
        log: EventSink,
    ) -> ConnectorSpec:
        streams = msgspec.to_builtins(ask_streams(runtime, config, timeouts, log))
        return msgspec.structs.replace(spec, abilities={**spec.abilities, "streams": streams})

    def problems(self, spec: ConnectorSpec, streams: Sequence[WriteStream]) -> list[str]:
        roles = spec.abilities.get("roles", [])
        if Roles.destination not in roles:
            return [f"it is not a destination: its roles are {', '.join(roles) or 'none'}"]
        known = _known_streams(spec)
        return [] if known is None else stream_specs.problems(known, streams)

    def fidelity(
        self,
        spec: ConnectorSpec,
        source_protocol: str,
        streams: Sequence[WriteStream],
        options: Mapping[str, Any],
    ) -> list[str]:
        notes = [
            "delivery is at least once: rows that the destination has not counted yet are sent "
            "again by the next run",
            "states of the source stay here; what a destination keeps is its own",
        ]
        if spec.abilities.get("zod"):
            notes.append(_ZOD)
        known = _known_streams(spec)
        if known is not None:
            notes += stream_specs.notes(known, streams)
        if options.get("on_failed_rows") == "isolate" and options.get("checkpoint_every") is None:
            notes.append(
                f"`on_failed_rows: isolate` ends a stream after every {ISOLATE_EVERY} rows, "
                "unless checkpoint_every is set: a destination that treats a stream as a whole (a"
                " file, a sheet, an audience) keeps only the last of these parts"
            )
        return [*notes, *(n for s in streams for n in _stream_notes(s))]

    def write(self, runtime: Host, request: WriteRequest, feed: Iterator[Feed]) -> Iterator[Answer]:
        """See ``DestinationConversation.write``. A stream that fails gives an ``Error`` with its
        name and a ``code`` (``destination.halted``, ``destination.exited``,
        ``destination.rows_failed``, ``destination.miscounted``, ``destination.no_result``,
        ``destination.heartbeat``, ...) while the others go on, and the exit code is 1 at the
        end."""
        said: list[Answer] = []

        def hear(event: Any) -> None:
            said.append(event)

        try:
            specs = ask_streams(runtime, request.config, request.timeouts, hear)
        finally:
            yield from said
        yield from Writer(runtime, request, specs).answers(feed)


def _known_streams(spec: ConnectorSpec) -> StreamSpecs | None:
    known = spec.abilities.get("streams")
    return None if known is None else msgspec.convert(known, StreamSpecs)


def _stream_notes(stream: WriteStream) -> Iterator[str]:
    kinds = {f.type.kind for f in stream.schemas[stream.latest].fields}
    if Kind.decimal in kinds:
        yield (
            f"{stream.id}: decimals are sent as text with all their digits, or as JSON numbers"
            " where the row type takes no text"
        )
    if Kind.integer in kinds:
        yield (
            f"{stream.id}: integers beyond 2^53 are sent as text, or as JSON numbers where the row"
            " type takes no text: a destination whose numbers are doubles rounds those"
        )
    if Kind.timestamp in kinds:
        yield f"{stream.id}: timestamps are sent in UTC, to the microsecond"
    if Kind.timestamp_ntz in kinds:
        yield f"{stream.id}: times without a zone are sent as times in UTC"
    if Kind.binary in kinds:
        yield f"{stream.id}: binary values are sent as base64 text"
    if stream.configured.sync_mode is not SyncMode.full_refresh:
        yield (
            f"{stream.id}: a run sends only rows that are new or changed: a destination that clears"
            " what it has when a stream starts (a file, a sheet, an audience) keeps only these"
        )
    match stream.configured.destination_sync_mode:
        case DestinationSyncMode.append_dedup:
            yield f"{stream.id}: rows of the same key are merged only by a destination that upserts"
        case DestinationSyncMode.overwrite:
            yield f"{stream.id}: old rows go only if the destination obeys fullRefresh"
        case _:
            return

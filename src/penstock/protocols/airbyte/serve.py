"""Builds the messages of Penstock as the destination of an Airbyte host, and decodes the host's
configured catalog.

Not here: printing (``cli.serve``); reading records and states, as those of a source
(``record_reader``). Source: protocol, Destination; specification, Destination.
"""

import json
import time
from collections.abc import Collection, Sequence
from typing import Any, cast

import msgspec

from penstock.codec.exact_json import exact, exact_text
from penstock.errors import Cancelled, ConfigError, SchemaError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    DestinationSyncMode,
    StreamId,
    SyncMode,
)
from penstock.protocols.airbyte.catalog import names_apart, stream_of
from penstock.protocols.airbyte.enums import FailureType
from penstock.protocols.hosts import HostGeneration
from penstock.protocols.stdio.json_lines import FAULTS

_PASSES = (
    "destination.conflict",
    "destination.table_locked",
    "state.lease_lost",
    "state.locked",
)
_CONFIGURED = ("destination.no_exchange", "destination.not_ours", "destination.not_writable")


def spec(config_schema: dict[str, Any]) -> str:
    return _line(
        "SPEC",
        "spec",
        {
            "connectionSpecification": config_schema,
            "supportsIncremental": True,
            "supported_destination_sync_modes": [m.value for m in DestinationSyncMode],
            "protocol_version": "0.18.0",
        },
    )


def state(blob: str, taken: int, rejected: int) -> str:
    """Returns the STATE message that gives a state back, with ``destinationStats`` (protocol 0.18,
    AirbyteStateStats: numbers with a point) and everything that the host wrote into it. The host
    compares the counts with its own."""
    try:
        message = exact(blob)
    except FAULTS:  # nested too deeply
        return f'{{"type":"STATE","state":{blob}}}'
    given = message.get("destinationStats")
    known = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    counts = {"recordCount": float(taken), "rejectedRecordCount": float(rejected)}
    message["destinationStats"] = {**known, **counts}
    return exact_text({"type": "STATE", "state": message}).decode()


def status(fault: str | None) -> str:
    """Returns the CONNECTION_STATUS message. ``fault``: why a write would fail; None: it would
    succeed."""
    body = {"status": "SUCCEEDED"} if fault is None else {"status": "FAILED", "message": fault}
    return _line("CONNECTION_STATUS", "connectionStatus", body)


def failed(message: str, hint: str | None, code: str, exit_code: int) -> str:
    """Returns the TRACE ERROR message of a failed write. ``code``, ``exit_code``: of the error."""
    kind = failure_type(code, exit_code)
    error = {"message": f"{message}; {hint}" if hint else message, "failure_type": kind.value}
    now = time.time() * 1000
    return _line("TRACE", "trace", {"type": "ERROR", "emitted_at": now, "error": error})


def failure_type(code: str, exit_code: int) -> FailureType:
    """Returns the failure type of a Penstock error: transient, of its configuration, or its own."""
    if code in _PASSES or exit_code == Cancelled.exit_code:
        return FailureType.transient_error
    if code in _CONFIGURED or exit_code in (ConfigError.exit_code, SchemaError.exit_code):
        return FailureType.config_error
    return FailureType.system_error


def _line(kind: str, key: str, body: dict[str, Any]) -> str:
    return json.dumps({"type": kind, key: body}, separators=(",", ":"))


def _is_plain(given: Any) -> bool:
    """Returns whether this is an AirbyteCatalog: its streams have names, and no ``stream``
    inside."""
    listed = cast(dict[str, Any], given).get("streams") if isinstance(given, dict) else None
    if not isinstance(listed, list) or not listed:
        return False
    streams = (s for s in cast(list[Any], listed))
    return all(isinstance(s, dict) and "name" in s and "stream" not in s for s in streams)


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    stream: dict[str, Any]
    sync_mode: SyncMode | None = None
    destination_sync_mode: DestinationSyncMode | None = None
    cursor_field: tuple[str, ...] | None = None
    primary_key: tuple[tuple[str, ...], ...] | None = None
    generation_id: int | None = None
    minimum_generation_id: int | None = None
    sync_id: int | None = None


class _Configured(msgspec.Struct, frozen=True, kw_only=True):
    streams: list[_Entry]


def configured(raw: bytes) -> tuple[Catalog, tuple[ConfiguredStream, ...]]:
    """Decodes a ConfiguredAirbyteCatalog; see :func:`generations` for its numbers. Its modes are
    accepted unchecked, whatever the streams offer: ``overwrite`` replaces existing rows with those
    of this sync (protocol, Destination Sync Modes), even where the source sends increments. An
    AirbyteCatalog, which the page passes to ``write``, is accepted too: its streams have the page's
    default modes. Raises ``ConfigError``."""
    try:
        given = msgspec.json.decode(raw)
        plain = _is_plain(given)
        if plain:
            given = {**given, "streams": [{"stream": stream} for stream in given["streams"]]}
        entries = msgspec.convert(given, _Configured).streams
        apart = names_apart(entry.stream for entry in entries)
        found = [_configured(entry, index, apart) for index, entry in enumerate(entries)]
        streams = tuple(stream for stream, _ in found)
        if len({s.id for s in streams}) < len(streams):
            raise ValueError("a stream comes twice")
    except (msgspec.MsgspecError, ValueError) as e:
        raise ConfigError(
            f"the configured catalog cannot be read: {e}",
            code="config.catalog",
            hint="give a ConfiguredAirbyteCatalog",
        ) from e
    notes = tuple(note for _, notes in found for note in notes)
    if plain:
        notes += (
            "the host gave a catalog without modes: its streams are written as full_refresh and"
            " append, the protocol's defaults",
        )
    return Catalog(tuple(s.stream for s in streams), notes=notes), streams


def _configured(
    entry: _Entry, index: int, apart: Collection[str]
) -> tuple[ConfiguredStream, list[str]]:
    """Returns the configured stream, and notes of its unreadable parts. Raises ``ValueError``."""
    try:
        stream, notes = stream_of(entry.stream, apart)
    except ValueError as e:
        raise ValueError(f"streams[{index}].stream: {e}") from e
    number, minimum = entry.generation_id, entry.minimum_generation_id
    if minimum not in (None, 0, number):
        raise ValueError(
            f"streams[{index}]: stream {stream.id}: minimum_generation_id is {minimum} and"
            f" generation_id {number}: all older generations can be kept (minimum 0) or replaced"
            " (minimum equal to the generation), and not a part of them"
        )
    sync_mode, cursor = entry.sync_mode or SyncMode.full_refresh, entry.cursor_field or ()
    key = tuple(path for path in entry.primary_key or () if path)
    key = key or stream.source_defined_primary_key or ()
    asked = msgspec.structs.replace(
        stream,
        sync_modes=(sync_mode,),
        source_defined_cursor=True,
        default_cursor_field=cursor or stream.default_cursor_field,
        source_defined_primary_key=key or None,
    )
    configured = ConfiguredStream(
        stream=asked,
        sync_mode=sync_mode,
        destination_sync_mode=entry.destination_sync_mode or DestinationSyncMode.append,
        cursor_field=cursor,
        primary_key=key,
        generation_id=number,
        minimum_generation_id=minimum,
        sync_id=entry.sync_id,
    )
    return configured, notes


def generations(streams: Sequence[ConfiguredStream]) -> dict[StreamId, HostGeneration]:
    """Returns the host's numbers for each stream. Older rows are replaced where
    ``minimum_generation_id`` equals ``generation_id``, whatever the mode."""
    return {
        s.id: HostGeneration(
            generation=s.generation_id,
            sync=s.sync_id,
            replaces=bool(s.generation_id) and s.generation_id == s.minimum_generation_id,
        )
        for s in streams
    }

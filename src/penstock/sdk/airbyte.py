"""Implements the command line of the Airbyte specification for a source: ``spec``, ``check``,
``discover`` and ``read``, with ``--config``, ``--catalog`` and ``--state``.

One call is one process; messages are lines on stdout. A failed stream is reported (``TRACE``,
``INCOMPLETE``), the others continue, and the exit code is 1. Not here: the process and its stdout
(``process``); what the author writes (``connector``). Source: the Airbyte specification, and the
protocol's messages.
"""

import argparse
import json
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.sdk.connector import CURSOR, Checkpoint, Connector, StreamReader
from penstock.sdk.schema import convert, json_schema

log = logging.getLogger("penstock.sdk")

Message = dict[str, Any]
Send = Callable[[Message], None]

COMMANDS = ("spec", "check", "discover", "read")
PROTOCOL = "0.2.0"
LEVELS = {"error": "ERROR", "warn": "WARN", "info": "INFO", "debug": "DEBUG"}
_KEPT = "checkpoint"  # a stream's state is an object with this one key


class Unusable(Exception):
    """A configuration, catalog or state that is invalid; the user has to fix it."""


def serve(connector: Connector, words: Sequence[str], send: Send) -> int:
    """Runs one command; returns the exit code."""
    parser = argparse.ArgumentParser(description=connector.description or None)
    parser.add_argument("command", choices=COMMANDS)
    for option in ("--config", "--catalog", "--state"):
        parser.add_argument(option, type=Path)
    arguments, _ = parser.parse_known_args(words)
    try:
        match arguments.command:
            case "spec":
                send({"type": "SPEC", "spec": _spec(connector)})
            case "check":
                send(
                    {"type": "CONNECTION_STATUS", "connectionStatus": _check(connector, arguments)}
                )
            case "discover":
                _config(connector, arguments.config)
                streams = [_described(stream) for stream in connector.sources]
                send({"type": "CATALOG", "catalog": {"streams": streams}})
            case _:
                return _read(connector, arguments, send)
    except Unusable as e:
        send(_trace(e, "config_error"))
        return 1
    return 0


def log_message(level: str, text: str) -> Message:
    return {"type": "LOG", "log": {"level": LEVELS[level], "message": text}}


def _spec(connector: Connector) -> Message:
    schema = _with_secrets(json_schema(connector.credentials))
    return {"protocol_version": PROTOCOL, "connectionSpecification": schema}


def _with_secrets(schema: Any) -> Any:
    """Returns the schema with draft 7's ``writeOnly`` as ``airbyte_secret``."""
    if isinstance(schema, list):
        return [_with_secrets(part) for part in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {k: _with_secrets(v) for k, v in cast(dict[str, Any], schema).items()}
    return {**parts, "airbyte_secret": True} if parts.get("writeOnly") is True else parts


def _check(connector: Connector, arguments: argparse.Namespace) -> Message:
    try:
        config = _config(connector, arguments.config)
        if connector.check is not None:
            connector.check(config)
    except Exception as e:
        log.debug("why it fails", exc_info=True)
        return {"status": "FAILED", "message": str(e) or type(e).__name__}
    return {"status": "SUCCEEDED"}


def _config(connector: Connector, path: Path | None) -> Any:
    given = _json(path, "--config")
    try:
        return convert(given, connector.credentials)
    except ValueError as e:  # msgspec names the path, never the value
        raise Unusable(f"the configuration does not fit: {e}") from None


def _json(path: Path | None, option: str) -> Any:
    if path is None:
        raise Unusable(f"{option} is missing")
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not JSON"
        raise Unusable(f"{option} {path} cannot be read: {why}") from None


def _described(stream: type[StreamReader]) -> Message:
    modes = ["full_refresh"] if stream.cursor is None else ["full_refresh", "incremental"]
    found: Message = {
        "name": stream.name,
        "json_schema": json_schema(stream.row),
        "supported_sync_modes": modes,
    }
    if stream.primary_key:
        found["source_defined_primary_key"] = [[field] for field in stream.primary_key]
    if stream.cursor is not None:
        found |= {"source_defined_cursor": True, "default_cursor_field": [stream.cursor]}
    return found


def _read(connector: Connector, arguments: argparse.Namespace, send: Send) -> int:
    config = _config(connector, arguments.config)
    readers = {stream.name: stream for stream in connector.sources}
    wanted: list[tuple[type[StreamReader], bool]] = []
    try:
        for entry in _json(arguments.catalog, "--catalog")["streams"]:
            name = entry["stream"]["name"]
            if name not in readers:
                raise Unusable(f"there is no stream {name!r}; there are {', '.join(readers)}")
            wanted.append((readers[name], entry["sync_mode"] == "incremental"))
        kept = _states(None if arguments.state is None else _json(arguments.state, "--state"))
    except (KeyError, TypeError, AttributeError) as e:
        raise Unusable(f"the catalog or the state is not of the protocol: {e!r}") from None
    failed = False
    for stream, incremental in wanted:
        send(_status(stream, "STARTED"))
        try:
            _read_stream(stream(config), incremental, kept.get(stream.name), send)
        except BrokenPipeError:
            raise
        except Exception as e:
            failed = True
            send(_trace(e, "system_error", stream))
            send(_status(stream, "INCOMPLETE"))
        else:
            send(_status(stream, "COMPLETE"))
    return int(failed)


def _read_stream(reader: StreamReader, incremental: bool, since: Any, send: Send) -> None:
    rows, own, greatest = 0, False, None
    for given in reader.read(since if incremental else None):
        if isinstance(given, Checkpoint):
            own = own or given.value is not CURSOR
            value = greatest if given.value is CURSOR else given.value
            if reader.cursor is None and given.value is CURSOR:
                raise TypeError("a Checkpoint() without a value needs a stream with a cursor")
            if incremental and (value is not None or given.value is not CURSOR):
                send(_state(reader, value, rows))
                rows = 0
            continue
        row = given if isinstance(given, dict) else msgspec.to_builtins(given)
        if not isinstance(row, dict):
            raise TypeError(f"a row is a {type(given).__name__}, no object")
        if reader.cursor is not None:
            value = cast(dict[str, Any], row).get(reader.cursor)
            if value is not None and (greatest is None or value > greatest):
                greatest = value
        if rows == 0:
            send(_status(type(reader), "RUNNING"))
        rows += 1
        record = {"stream": reader.name, "data": row, "emitted_at": time.time_ns() // 1_000_000}
        send({"type": "RECORD", "record": record})
    if incremental and not own and greatest is not None:
        send(_state(reader, greatest, rows))
    elif incremental and own and rows:
        again = f"{rows} rows after the last Checkpoint come again in the next run"
        send(log_message("warn", f"{reader.name}: {again}: yield one after the last row too"))


def _states(given: Any) -> dict[str, Any]:
    """Returns the value of the last checkpoint by stream. Raises ``Unusable`` for a LEGACY state,
    one object for all streams, which this source never wrote: starting from the beginning would
    send rows again."""
    given = [given] if isinstance(given, dict) and "stream" in given else given
    if not isinstance(given, list):
        if given in (None, {}):
            return {}
        raise Unusable(
            "--state is a LEGACY state, which this source cannot read: give it its own STREAM"
            " states, or none"
        )
    found: dict[str, Any] = {}
    for message in cast(list[Any], given):
        stream = message["stream"]
        state = stream.get("stream_state") or {}
        found[stream["stream_descriptor"]["name"]] = state.get(_KEPT)
    return found


def _state(reader: StreamReader, value: Any, rows: int) -> Message:
    stream = {"stream_descriptor": {"name": reader.name}, "stream_state": {_KEPT: value}}
    counted = {"sourceStats": {"recordCount": float(rows)}}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": stream, **counted}}


def _status(stream: type[StreamReader], status: str) -> Message:
    body = {"stream_descriptor": {"name": stream.name}, "status": status}
    return _traced({"type": "STREAM_STATUS", "stream_status": body})


def _trace(error: Exception, kind: str, stream: type[StreamReader] | None = None) -> Message:
    text = str(error) or type(error).__name__
    body: Message = {"message": text, "failure_type": kind}
    if kind == "system_error":
        body["internal_message"] = f"{type(error).__name__}: {error}"
        body["stack_trace"] = "".join(traceback.format_exception(error))
    if stream is not None:
        body["stream_descriptor"] = {"name": stream.name}
    return _traced({"type": "ERROR", "error": body})


def _traced(trace: Message) -> Message:
    return {"type": "TRACE", "trace": {**trace, "emitted_at": time.time() * 1000}}

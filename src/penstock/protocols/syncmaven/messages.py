"""Declares Syncmaven's wire messages: those that we send as lines, and those that we read as
structs.

Two dialects exist: the specification page's, and that of the code behind real connectors (node CDK
0.0.11). Both are read, with their fields in ``payload`` or next to ``type``; the second one is
written. Not here: lines that are not strict JSON, and output that is not a message
(``reply_reader``). Source: the protocol page; reference §1.
"""

from enum import StrEnum
from typing import Any, cast

import msgspec

from penstock.protocols.syncmaven.zod import is_zod


class Reply(StrEnum):
    """The messages of a connector."""

    spec = "spec"
    stream_spec = "stream-spec"
    stream_result = "stream-result"
    log = "log"
    halt = "halt"
    enriched = "enrichment-response"


PAGE_SPEC = "connection-spec"
PAGE_STREAMS = "streams-spec"
ALIASES = {
    PAGE_SPEC: Reply.spec,
    PAGE_STREAMS: Reply.stream_spec,
    "enrichment-reply": Reply.enriched,
}
"""Reply names of the documentation that differ from those of the code."""


class Roles(StrEnum):
    destination = "destination"
    enrichment = "enrichment"


class Spec(msgspec.Struct, frozen=True):
    """``credentials_schema`` None: it gave none, or (``zod``) an unreadable one. ``roles`` None: it
    named none, as the page's dialect has no roles. ``by_page``: it answered in the page's
    dialect."""

    credentials_schema: dict[str, Any] | None
    roles: tuple[str, ...] | None
    description: str | None
    by_page: bool = False
    zod: bool = False


class StreamSpec(msgspec.Struct, frozen=True):
    """``row_type``, ``options``: JSON Schemas; None: not given, or (``zod``) one of them is a Zod
    schema."""

    name: str
    row_type: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    zod: bool = False


class StreamSpecs(msgspec.Struct, frozen=True):
    """``by_page``: as in :class:`Spec`. ``unnamed``: the destination names no streams, which the
    page permits; it takes a stream of any name."""

    streams: tuple[StreamSpec, ...]
    default: str | None = None
    roles: tuple[str, ...] | None = None
    by_page: bool = False
    unnamed: bool = False


class Result(msgspec.Struct, frozen=True):
    """How many rows of a stream were received, skipped, taken and refused, since its start.
    ``counted`` False: the destination gave no counts, and its exit code 0 stands for all rows."""

    received: int
    skipped: int
    success: int
    failed: int
    counted: bool = True


class LogMessage(msgspec.Struct, frozen=True):
    level: str
    text: str


class HaltMessage(msgspec.Struct, frozen=True):
    """``ok``: the connector stops without a fault."""

    ok: bool
    message: str
    data: Any = None


class EnrichmentAnswer(msgspec.Struct, frozen=True):
    """The answer to one request: the rows that the row became. ``fault``: why there are none, in
    the connector's words or ours; None: it is no fault."""

    rows: tuple[dict[str, Any], ...] = ()
    fault: str | None = None


Message = Spec | StreamSpecs | Result | LogMessage | HaltMessage | EnrichmentAnswer


class MalformedReply(msgspec.Struct, frozen=True):
    """A reply of the type ``reply`` that lacks a required part, and why it is dropped."""

    reply: str
    reason: str


class Invalid(ValueError):
    """Raised for a message of a known type that lacks a required part."""


_LEVELS = {"warning": "WARN", "trace": "TRACE", "critical": "FATAL"}
_KNOWN = frozenset({"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"})


def reply_type(raw: dict[str, Any]) -> str | None:
    """Returns the type of a message in the code's dialect. A halt may come without a type
    (reference §1.3), with its status in ``payload``: many programs answer a bare status, and
    connectors print it."""
    type_ = raw.get("type")
    payload = _object(raw.get("payload"))
    if type_ is None and payload is not None and payload.get("status") in ("ok", "error"):
        return Reply.halt
    return ALIASES.get(type_, type_) if isinstance(type_, str) else None


def parse(type_: str, raw: dict[str, Any]) -> Message:
    """Parses a reply of a known type. Raises :class:`Invalid`."""
    fields = _fields(raw)
    match type_:
        case Reply.spec:
            return _spec(fields, raw.get("type"))
        case Reply.stream_spec:
            return _stream_specs(fields, by_page=raw.get("type") == PAGE_STREAMS)
        case Reply.stream_result:
            return _result(raw, fields)
        case Reply.log:
            return _log(fields)
        case Reply.enriched:
            return _enriched(fields)
        case _:
            return _halt(fields)


def _fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a message, wherever it has them."""
    payload = raw.get("payload")
    inner = cast(dict[str, Any], payload) if isinstance(payload, dict) else {}
    outer = {k: v for k, v in raw.items() if k not in ("type", "payload", "direction")}
    return {**outer, **inner}


def _spec(fields: dict[str, Any], type_: Any) -> Spec:
    """Parses a spec. The page uses both names for the message; then its fields decide the dialect:
    ``credentialsSchema`` is the page's, ``connectionCredentials`` and ``roles`` (required) are the
    code's."""
    by_code = "connectionCredentials" in fields or "roles" in fields
    by_page = type_ == PAGE_SPEC or "credentialsSchema" in fields or not by_code
    schema = _object(fields.get("connectionCredentials", fields.get("credentialsSchema")))
    description, zod = _text(fields.get("description")), schema is not None and is_zod(schema)
    return Spec(None if zod else schema, _roles(fields), description, by_page, zod)


def _stream_specs(fields: dict[str, Any], *, by_page: bool) -> StreamSpecs:
    streams = fields.get("streams")
    if by_page and streams is None:
        return StreamSpecs((), None, _roles(fields), by_page, unnamed=True)
    if not isinstance(streams, list):
        raise Invalid("it has no list of streams")
    found: list[StreamSpec] = []
    for one in cast(list[Any], streams):
        stream = {"name": one} if by_page and isinstance(one, str) else _object(one)
        name = None if stream is None else stream.get("name")
        if stream is None or not isinstance(name, str) or not name:
            raise Invalid("a stream of it has no name")
        schemas = [_object(stream.get(key)) for key in ("rowType", "streamOptions")]
        zod = [schema is not None and is_zod(schema) for schema in schemas]
        row_type, options = (None if z else s for s, z in zip(schemas, zod, strict=True))
        found.append(StreamSpec(name, row_type, options, any(zod)))
    default = _text(fields.get("defaultStream"))
    return StreamSpecs(tuple(found), default, _roles(fields), by_page)


def _result(raw: dict[str, Any], fields: dict[str, Any]) -> Result:
    """Parses one object of counters, or a map of them, which are added up."""
    names = ("received", "skipped", "success", "failed")
    if any(name in fields and _object(fields[name]) is None for name in names):
        counters = [fields]
    elif isinstance(raw.get("payload"), dict):
        counters = [c for c in map(_object, fields.values()) if c is not None]
    else:
        raise Invalid("it has no counters")
    received, skipped, success, failed = (sum(_count(c, n) for c in counters) for n in names)
    return Result(received, skipped, success, failed)


def _count(counters: dict[str, Any], name: str) -> int:
    value = counters.get(name)
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not whole or isinstance(value, bool) or int(cast(float, value)) < 0:
        raise Invalid(f"its counter {name!r} is {'missing' if value is None else 'no count'}")
    return int(cast(float, value))


def _log(fields: dict[str, Any]) -> LogMessage:
    level = str(fields.get("level", "info")).lower()
    level = _LEVELS.get(level, level.upper())
    message, params = fields.get("message"), fields.get("params")
    words = [message if isinstance(message, str) else _json(message)]
    given = cast(list[Any], params) if isinstance(params, list) else []
    words += [p if isinstance(p, str) else _json(p) for p in given]
    return LogMessage(level if level in _KNOWN else "INFO", " ".join(words))


def _halt(fields: dict[str, Any]) -> HaltMessage:
    """Parses a halt. Without a status it is an error: the page's own dialect has none."""
    message = fields.get("message")
    text = message if isinstance(message, str) else "" if message is None else _json(message)
    return HaltMessage(fields.get("status") == "ok", text, fields.get("data"))


def _enriched(fields: dict[str, Any]) -> EnrichmentAnswer:
    """Parses an answer. ``row`` (or ``rows``) is an object, a list of objects, or null for none. An
    ``error`` next to it, and an answer without a row, are faults of the sent row: if the answer
    were dropped, the next one would be taken for it."""
    error = fields.get("error")
    if error is not None:
        inner = _object(error) or {}
        words = inner.get("message", error)
        return EnrichmentAnswer((), words if isinstance(words, str) else _json(words))
    if "row" not in fields and "rows" not in fields:
        return EnrichmentAnswer((), "the answer has no row")
    given = fields.get("row", fields.get("rows"))
    found = cast(list[Any], given) if isinstance(given, list) else [given]
    rows = [_object(row) for row in found if given is not None]
    if None in rows:
        return EnrichmentAnswer((), "the answer's row is not an object")
    return EnrichmentAnswer(tuple(row for row in rows if row is not None))


def _roles(fields: dict[str, Any]) -> tuple[str, ...] | None:
    roles = fields.get("roles")
    if not isinstance(roles, list):
        return None
    return tuple(str(r) for r in cast(list[Any], roles))


def _object(value: Any) -> dict[str, Any] | None:
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# -- what we send

ROW_START, ROW_END = '{"type":"row","payload":{"row":', "}}"
"""The text before and after a row's object in its line."""


REQUEST_START, REQUEST_END = '{"type":"enrichment-request","payload":{"row":', "}}"


def start_enrichment(
    *, by_page: bool, credentials: dict[str, Any], options: dict[str, Any], sync_id: str
) -> bytes:
    """Encodes the start. ``by_page``: the connector described itself in the page's dialect, so it
    is started in that dialect too."""
    payload = {"credentials": credentials, "options": options, "syncId": sync_id}
    type_ = "start-enrichment" if by_page else "enrichment-connect"
    return _line({"type": type_, "payload": payload})


def describe() -> bytes:
    return b'{"type":"describe"}\n'


def describe_streams(credentials: dict[str, Any] | None) -> bytes:
    """Encodes ``describe-streams``. ``credentials`` None: there are none yet."""
    given = {"$empty": True} if credentials is None else credentials
    return _line({"type": "describe-streams", "payload": {"credentials": given}})


def start_stream(
    stream: str,
    credentials: dict[str, Any],
    options: dict[str, Any],
    sync_id: str,
    *,
    full_refresh: bool,
) -> bytes:
    payload = {
        "stream": stream,
        "connectionCredentials": credentials,
        "streamOptions": options,
        "syncId": sync_id,
        "fullRefresh": full_refresh,
    }
    return _line({"type": "start-stream", "payload": payload})


def end_stream() -> bytes:
    return b'{"type":"end-stream","reason":"success"}\n'


def _line(message: dict[str, Any]) -> bytes:
    return msgspec.json.encode(message) + b"\n"

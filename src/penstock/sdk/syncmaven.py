"""Implements the Syncmaven protocol for a connector: handles a host's messages, sends the answers.

Reads both dialects: the page's names and the code's, fields in ``payload`` or next to ``type``,
credentials bare or wrapped. Sends the code's names, since the real host reads no others; a host
that sent ``start-enrichment`` gets the page's ``enrichment-reply``. After a halt it keeps reading
messages, and answers ``end-stream`` with the halt again, so that no host considers the stream
finished. Not here: lines and the process (``process``). Source: the page; what the real host does.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import msgspec

from penstock.sdk.batches import Batches, patiently
from penstock.sdk.connector import Connector, Enricher, Halt, RowError, Sync
from penstock.sdk.schema import convert, json_schema
from penstock.sdk.store import KeyValueStore

log = logging.getLogger("penstock.sdk")

Message = dict[str, Any]


class Speaker:
    """One conversation. ``send``: receives each answer. ``store_of``: the store of a ``syncId``."""

    def __init__(
        self,
        connector: Connector,
        send: Callable[[Message], None],
        store_of: Callable[[str], KeyValueStore],
    ) -> None:
        self._connector, self._send, self._store_of = connector, send, store_of
        self._batches: Batches | None = None
        self._enricher: Enricher | None = None
        self._reply = "enrichment-response"
        self._halted: Message | None = None

    @property
    def in_stream(self) -> bool:
        """Returns whether rows may have been taken that the host does not know about."""
        return self._batches is not None

    def take(self, line: bytes) -> None:
        """Handles one line from the host."""
        line = line.strip()
        if not line:
            return
        try:
            message = msgspec.json.decode(line)
        except (ValueError, RecursionError) as e:
            self._halt(Halt(f"a line of the host is not JSON: {e}"))
            return
        given = cast(Message, message) if isinstance(message, dict) else {}
        kind = given.get("type")
        if kind == "row" and self._halted is not None:
            return
        payload = given.get("payload")
        fields = cast(Message, payload) if isinstance(payload, dict) else given
        try:
            self._handle(kind, fields)
        except Halt as e:
            self._halt(e)
        except Exception as e:
            log.debug("why it halts", exc_info=True)
            self._halt(Halt(f"{type(e).__name__}: {e}"))

    def _handle(self, kind: Any, fields: Message) -> None:
        match kind:
            case "row":
                self._row(fields)
            case "enrichment-request":
                self._enrich(fields)
            case "describe":
                self._describe()
            case "describe-streams":
                self._describe_streams()
            case "start-stream":
                self._start_stream(fields)
            case "end-stream":
                self._end_stream()
            case "enrichment-connect":
                self._start_enrichment(fields, "enrichment-response")
            case "start-enrichment":
                self._start_enrichment(fields, "enrichment-reply")
            case _:
                log.warning("a message of type %r is not known and was left out", kind)

    def _halt(self, halt: Halt) -> None:
        self._batches = self._enricher = None
        payload = {"status": "ok" if halt.ok else "error", "message": halt.message}
        self._halted = {"type": "halt", "payload": payload}
        self._send(self._halted)

    def _describe(self) -> None:
        schema = json_schema(self._connector.credentials)
        payload: Message = {"roles": self._roles(), "connectionCredentials": schema}
        if self._connector.description:
            payload["description"] = self._connector.description
        self._send({"type": "spec", "payload": payload})

    def _describe_streams(self) -> None:
        streams: list[Message] = []
        for stream in self._connector.streams:
            described: Message = {"name": stream.name, "rowType": json_schema(stream.row)}
            if stream.options is not None:
                described["streamOptions"] = json_schema(stream.options)
            streams.append(described)
        if not streams:
            raise Halt("this connector is not a destination: it has no streams")
        payload = {
            "roles": self._roles(),
            "defaultStream": streams[0]["name"],
            "streams": streams,
        }
        self._send({"type": "stream-spec", "payload": payload})

    def _start_stream(self, fields: Message) -> None:
        self._halted = None
        wanted = fields.get("stream")
        found = [s for s in self._connector.streams if s.name == wanted]
        if not found:
            known = ", ".join(s.name for s in self._connector.streams) or "none"
            raise Halt(f"there is no stream {wanted!r}; there are: {known}")
        sync = self._sync(fields, "connectionCredentials", "streamOptions", found[0].options)
        writer = found[0](sync)
        patiently(writer.open, self._connector.rate_limit)
        self._batches = Batches(writer, self._connector.rate_limit)

    def _row(self, fields: Message) -> None:
        if self._batches is None:
            raise Halt("a row came before start-stream")
        self._batches.row(fields.get("row"))

    def _end_stream(self) -> None:
        if self._halted is not None:
            self._send(self._halted)
            return
        if self._batches is None:
            raise Halt("end-stream came before start-stream")
        counters = self._batches.end()
        self._batches = None
        self._send({"type": "stream-result", "payload": asdict(counters)})

    def _start_enrichment(self, fields: Message, reply: str) -> None:
        self._halted, self._reply = None, reply
        kind = self._connector.enrichment
        if kind is None:
            raise Halt("this connector is not an enrichment")
        enricher = kind(self._sync(fields, "credentials", "options", kind.options))
        patiently(enricher.open, self._connector.rate_limit)
        self._enricher = enricher

    def _enrich(self, fields: Message) -> None:
        if self._halted is not None:
            self._send(self._halted)
            return
        enricher = self._enricher
        if enricher is None:
            raise Halt("a request came before the enrichment was started")
        try:
            row = _fitting(fields.get("row"), enricher.row)
            answer = patiently(lambda: enricher.enrich(row), self._connector.rate_limit)
        except RowError as e:
            self._send({"type": self._reply, "payload": {"row": [], "error": str(e)}})
            return
        if answer is None:
            raise Halt("enrich() returned None: return the row, or [] to drop it")
        self._send({"type": self._reply, "payload": {"row": msgspec.to_builtins(answer)}})

    def _sync(self, fields: Message, credentials: str, options: str, kind: Any) -> Sync:
        sync_id = str(fields.get("syncId") or "sync")
        return Sync(
            credentials=_given("credentials", fields.get(credentials), self._connector.credentials),
            options=_given("options", fields.get(options), kind),
            sync_id=sync_id,
            full_refresh=fields.get("fullRefresh") is True,
            store=self._store_of(sync_id),
        )

    def _roles(self) -> list[str]:
        roles = ["destination"] if self._connector.streams else []
        return [*roles, "enrichment"] if self._connector.enrichment is not None else roles


def _fitting(row: Any, kind: Any) -> Any:
    """Converts a row to its declared type. Raises ``RowError``."""
    try:
        return convert(row, kind)
    except ValueError as e:
        raise RowError(f"the row does not fit: {e}") from None


def _given(what: str, value: Any, kind: Any) -> Any:
    """Unwraps and converts credentials and options. Raises ``Halt``."""
    given = cast(Message, value) if isinstance(value, dict) else {}
    if given.keys() == {"success", "data"} and isinstance(given["data"], dict):
        given = cast(Message, given["data"])
    if given.get("$empty") is True:
        given = {}
    try:
        return convert(given, kind)
    except ValueError as e:
        raise Halt(f"the {what} do not fit: {e}") from None

"""Answers the calls of the state RPC over HTTP, as an ASGI application: access, limits of a body,
the form of an answer.

Serves two dialects. Clients with the page's secret (``RPC_SECRET``) get the page's forms:
``{"value": ...}``, and a list as one array. All others, with the token of the real SDK or only the
secret in the path, get the real host's answers: the bare value, and a list of lines. A list is
streamed in both. Not here: the server's life (``state_rpc``), the keys (``state_store``).
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from penstock.errors import PenstockError
from penstock.protocols.syncmaven.state_store import BadKey, Key, StateStore

LARGEST_BODY = 1 << 20
BODY_SECONDS = 30.0  # until a whole body has come
SEND_SECONDS = 60.0  # until a client takes a piece of a list
_DRAINED = 16 * LARGEST_BODY  # read of a too large body, so that its client sees the answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON, _LINES = b"application/json", b"application/x-ndjson"


class Secrets(msgspec.Struct, frozen=True):
    """``page`` and ``sdk``: the bearers of the two dialects; ``path``: the first part of the
    path."""

    page: str
    sdk: str
    path: str


class KeyBody(msgspec.Struct):
    key: Key
    value: msgspec.Raw = msgspec.Raw(b"null")


class PrefixBody(msgspec.Struct):
    prefix: Key


_Body = TypeVar("_Body", KeyBody, PrefixBody)


class CallRefused(Exception):
    """Raised for a call that is refused."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


class StateApp:
    """``executor``: runs the store's calls, which block."""

    def __init__(self, store: StateStore, secrets: Secrets, executor: Executor) -> None:
        self._store, self._secrets, self._executor = store, secrets, executor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except CallRefused as e:
            await _send(send, e.status, msgspec.json.encode({"error": e.error}))
            return
        if isinstance(answer, bytes):
            await _send(send, 200, answer)
        else:
            await self._send_list(send, *answer)

    async def _answer(self, scope: Scope, receive: Receive) -> bytes | tuple[bool, Iterator[Any]]:
        """Returns a body; for a list, whether it is sent as lines, and its pages."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        parts = [part for part in str(scope["path"]).split("/") if part]
        by_page = self._dialect(headers, parts)
        name = parts[-1] if parts else ""
        method = _METHODS.get(name)
        if method is None and name != "state.list":
            known = ", ".join(sorted([*_METHODS, "state.list"]))
            raise CallRefused(404, f"there is no method of this name; there are {known}")
        if scope["method"] != "POST":
            raise CallRefused(405, "methods are called by POST")
        body = await _body(headers, receive)
        if method is not None:
            return await self._run(lambda: method(self._store, body, by_page))
        as_lines = not by_page or any(n == b"accept" and _LINES in v for n, v in headers)
        prefix = _decoded(body, PrefixBody).prefix
        return as_lines, await self._run(lambda: _begun(self._store.pages(prefix)))

    def _dialect(self, headers: list[tuple[bytes, bytes]], parts: list[str]) -> bool:
        """Returns whether the client uses the page's dialect. Raises ``CallRefused`` where it may
        not call."""
        given = [value for name, value in headers if name == b"authorization"]
        in_path = len(parts) == 2 and _same(parts[0].encode(), self._secrets.path)
        if given:
            kind, _, bearer = given[-1].strip().partition(b" ")
            by_page = _same(bearer.strip(), self._secrets.page)
            known = by_page or _same(bearer.strip(), self._secrets.sdk)
            fits = known and (in_path or len(parts) == 1)
            if fits and len(given) == 1 and kind.lower() == b"bearer":
                return by_page
        elif in_path:
            return False
        raise CallRefused(401, "the secret is missing or wrong; RPC_URL and RPC_SECRET hold it")

    async def _send_list(self, send: Send, as_lines: bool, pages: Iterator[list[str]]) -> None:
        kind = _LINES if as_lines else _JSON
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}
        )
        text = "" if as_lines else "["
        between = "" if as_lines else ","
        first = True
        while (page := await self._run(lambda: next(pages, None))) is not None:
            if as_lines:
                text += "".join(f"{entry}\n" for entry in page)
            else:
                text += ("" if first else between) + ",\n".join(page)
            first = False
            await _send_piece(send, text.encode(), more=True)
            text = ""
        await _send_piece(send, (text if as_lines else f"{text}]").encode(), more=False)

    async def _run(self, call: Callable[[], Any]) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except BadKey as e:
            raise CallRefused(400, str(e)) from None
        except PenstockError as e:
            raise CallRefused(500, f"the state store failed: {e.message}") from None


async def _body(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    """Reads a request's whole body. Raises ``CallRefused`` where it is too large or does not
    come."""
    sizes = [value for name, value in headers if name == b"content-length"]
    too_large = any(len(size) > 9 or int(size) > LARGEST_BODY for size in sizes)
    body, drained = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallRefused(400, "the body ended early")
                piece: bytes = message.get("body", b"")
                drained += len(piece)
                too_large = too_large or drained > LARGEST_BODY
                if not too_large:
                    body += piece
                if not message.get("more_body", False) or drained > _DRAINED:
                    break
    except TimeoutError:
        raise CallRefused(408, f"the body did not come within {BODY_SECONDS:.0f} seconds") from None
    if too_large:
        raise CallRefused(413, f"a body has at most {LARGEST_BODY} bytes; this one has more")
    return bytes(body)


def _decoded(body: bytes, kind: type[_Body]) -> _Body:
    try:
        body.decode()  # nothing else checks a raw value
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as e:
        disposition = '{"key": "a" or ["a", "b"], "value": ...}'
        if kind is PrefixBody:
            disposition = '{"prefix": "a" or ["a", "b"]}'
        raise CallRefused(400, f"the body is not JSON of the form {disposition}: {e}") from None


def _get(store: StateStore, body: bytes, by_page: bool) -> bytes:
    value = store.get(_decoded(body, KeyBody).key)
    if value is None:
        return b"{}"
    return (f'{{"value":{value}}}' if by_page else value).encode()


def _set(store: StateStore, body: bytes, by_page: bool) -> bytes:
    del by_page
    call = _decoded(body, KeyBody)
    store.set(call.key, bytes(call.value))
    return b"{}"


def _delete(store: StateStore, body: bytes, by_page: bool) -> bytes:
    del by_page
    return _rows(store.delete(_decoded(body, KeyBody).key))


def _delete_all(store: StateStore, body: bytes, by_page: bool) -> bytes:
    del by_page
    return _rows(store.delete_all(_decoded(body, PrefixBody).prefix))


def _size(store: StateStore, body: bytes, by_page: bool) -> bytes:
    del by_page
    return msgspec.json.encode({"size": store.size(_decoded(body, PrefixBody).prefix)})


def _rows(deleted: int) -> bytes:
    return msgspec.json.encode({"rowsDeleted": int(deleted)})


_METHODS: dict[str, Callable[[StateStore, bytes, bool], bytes]] = {
    "state.get": _get,
    "state.set": _set,
    "state.delete": _delete,
    "state.del": _delete,
    "state.deleteAll": _delete_all,
    "state.deleteByPrefix": _delete_all,
    "state.size": _size,
}


def _begun(pages: Iterator[list[str]]) -> Iterator[list[str]]:
    """Reads the first page before any answer is sent, so that a failure can still be reported."""
    first = next(pages, None)

    def all_of() -> Iterator[list[str]]:
        if first is not None:
            yield first
            yield from pages

    return all_of()


def _same(given: bytes, secret: str) -> bool:
    return hmac.compare_digest(given, secret.encode())


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", _JSON), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await _send_piece(send, body, more=False)


async def _send_piece(send: Send, body: bytes, *, more: bool) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})

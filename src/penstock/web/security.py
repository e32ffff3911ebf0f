"""Decides who may ask the pages: a browser that has the session's cookie, by an address of this
server, from a page of this server.

A request passes if its ``Host`` is one of the server's names (DNS rebinding), if what it changes
is asked by a page of the same origin (cross-site requests), and if it has a session's cookie
(SameSite=Strict, HttpOnly). A session begins with the one-time token of the opened address, or with
the password, where the server listens beyond this machine. A request that is refused spends no
token. Every answer forbids scripts, frames and forms of others. Not here: which files may be read
(``workspace``), masking (``jobs``, ``pages``).
"""

import hashlib
import hmac
import html
import ipaddress
import secrets
import socket
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 8 << 20
"""Of a request's body."""
_SAFE = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without one, a form is sent with the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">{more}
<meta name="viewport" content="width=device-width"><title>Penstock</title></head>
<body><main><h1>{title}</h1>{body}</main></body></html>"""


class Gate:
    """The sessions of one server. ``port``: where it listens; ``host``: the name it listens on;
    ``password``: begins a session too; None: only the token does."""

    def __init__(self, host: str, port: int, password: str | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self._password = password
        self._port = port
        self._spent = False
        self._sessions: set[bytes] = set()
        self._tried_at = 0.0
        self.cookie = f"penstock_{port}"  # cookies know no port
        self._names = {"127.0.0.1", "localhost", "[::1]"}
        self._beyond = not is_loopback(host)
        if self._beyond:
            self._names |= {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def knows_host(self, host: str) -> bool:
        """Whether a ``Host`` header names this server. Beyond this machine any address is one, but
        no foreign name."""
        name, _, port = host.lower().rpartition(":")
        if not name or port != str(self._port):
            return False
        return name in self._names or (self._beyond and _is_address(name.strip("[]")))

    def begin(self, token: str) -> str | None:
        """Returns a new session for the one-time token; None: it is another, or spent."""
        if self._spent or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._spent = True
        return self._session()

    @property
    def has_password(self) -> bool:
        return self._password is not None

    def begin_by_password(self, given: str) -> str | None:
        """Returns a new session for the password; None: it is another, or was tried within the last
        second."""
        now = time.monotonic()
        early, self._tried_at = now - self._tried_at < 1, now
        wanted = self._password
        if early or wanted is None or not hmac.compare_digest(given.encode(), wanted.encode()):
            return None
        return self._session()

    def knows_session(self, cookies: str) -> bool:
        """Whether a ``Cookie`` header holds a session."""
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return False
        return found is not None and _digest(found.value) in self._sessions

    def _session(self) -> str:
        made = secrets.token_urlsafe(32)
        self._sessions.add(_digest(made))
        return made


class GuardedApp:
    """Wraps the application: refuses what may not pass, and puts :data:`HEADERS` on every
    answer."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSocket is spoken: the connection ends
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, 403, _page("This request is refused", refusal))
            return
        if await self._entered(scope, headers, receive, send):
            return
        if not self._gate.knows_session(headers.get("cookie", "")):
            await _answer(send, 403, self._door())
            return
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self._gate.knows_host(host):
            return "It names another host than this server's."
        if scope["method"] in _SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return "It comes from a page of another origin."
        if origin is None and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return "It comes from a page of another site."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return f"It is larger than {MOST_BYTES >> 20} MB."
        return None

    async def _entered(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> bool:
        """Begins a session, if the request asks for one, and answers it."""
        session = None
        if scope["path"] == "/open" and scope["method"] == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            session = self._gate.begin(given)
        elif scope["path"] == "/login" and scope["method"] == "POST" and self._gate.has_password:
            body = await _body(receive)
            session = self._gate.begin_by_password(parse_qs(body).get("password", [""])[0])
        if session is None:
            return False
        # The page goes on by itself: the browser sends a strict cookie only from a page of ours.
        cookie = f"{self._gate.cookie}={session}; Path=/; HttpOnly; SameSite=Strict"
        more = '<meta http-equiv="refresh" content="0;url=/">'
        page = _PAGE.format(title="Penstock", body='<p><a href="/">Go on</a></p>', more=more)
        await _answer(send, 200, page, cookie)
        del headers
        return True

    def _door(self) -> str:
        if not self._gate.has_password:
            return _page(
                "This page needs its own address",
                "Open the address that penstock ui printed; it works once. Stop it and start it "
                "again for a new one.",
                '<p><a href="/">Try again in this browser</a></p>',
            )
        form = (
            '<form method="post" action="/login"><label>Password <input type="password" '
            'name="password" autocomplete="current-password"></label> <button>Go on</button></form>'
        )
        return _page("Penstock", "This server asks for its password.", form)


def is_loopback(host: str) -> bool:
    """Whether the name or address is this machine's own alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _page(title: str, text: str, more: str = "") -> str:
    return _PAGE.format(title=html.escape(title), body=f"<p>{html.escape(text)}</p>{more}", more="")


async def _answer(send: Send, status: int, page: str, cookie: str | None = None) -> None:
    body = page.encode()
    headers = {**HEADERS, "content-type": "text/html; charset=utf-8"}
    headers["content-length"] = str(len(body))
    if cookie is not None:
        headers["set-cookie"] = cookie
    raw = [(k.encode(), v.encode()) for k, v in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            had = {k.lower() for k, _ in given}
            more = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in had]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return sending


def _bounded(receive: Receive) -> Receive:
    """Ends the connection of a body that is larger than it said or may be."""
    taken = 0

    async def receiving() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        return {"type": "http.disconnect"} if taken > MOST_BYTES else message

    return receiving


async def _body(receive: Receive) -> str:
    got = bytearray()
    while len(got) < 4096:
        message = await receive()
        got += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return got.decode("utf-8", "replace")

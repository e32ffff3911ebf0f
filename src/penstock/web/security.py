"""Decides which requests get the pages: those of a browser with the session's cookie, to an address
of this server, from a page of this server.

A request passes if its ``Host`` is one of the server's names (DNS rebinding), if a request that
changes something comes from a page of the same origin (cross-site requests), and if it has a
session's cookie (SameSite=Strict, HttpOnly). A browser sends a cookie to every port of a host, so
also to a server of another user: on Linux a connection from this machine must be this user's own. A
session begins with the one-time token of the opened address, or with the password, where the server
listens beyond this machine. A refused request spends no token. Every answer forbids scripts, frames
and forms of other origins. Not here: which files may be read (``workspace``), masking (``jobs``,
``pages``).
"""

import asyncio
import hashlib
import hmac
import html
import ipaddress
import os
import secrets
import socket
from pathlib import Path
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 8 << 20
"""The most bytes of a request's body."""
_WRONG_SECONDS = 0.5
_MOST_WAITING = 20
_LISTS_OF_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
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
    ``password``: also begins a session; None: only the token does."""

    def __init__(self, host: str, port: int, password: str | None = None) -> None:
        self.token = secrets.token_urlsafe(32)
        self._password = password
        self._port = port
        self._spent = False
        self._sessions: set[bytes] = set()
        self._lines: dict[str, asyncio.Lock] = {}
        self._waiting: dict[str, int] = {}
        self.cookie = f"penstock_{port}"  # cookies are not bound to a port
        self._names = {"127.0.0.1", "localhost", "[::1]"}
        self._beyond = not is_loopback(host)
        if self._beyond:
            self._names |= {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def knows_host(self, host: str) -> bool:
        """Returns whether a ``Host`` header names this server. Beyond this machine any IP address
        does, but no foreign name."""
        name, _, port = host.lower().rpartition(":")
        if self._port == 80 and not port.isdecimal():  # browsers omit it
            name, port = host.lower(), "80"
        if not name or port != str(self._port):
            return False
        return name in self._names or (self._beyond and _is_address(name.strip("[]")))

    def begin(self, token: str) -> str | None:
        """Returns a new session for the one-time token; None: the token is wrong or spent."""
        if self._spent or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._spent = True
        return self._session()

    @property
    def has_password(self) -> bool:
        return self._password is not None

    async def begin_by_password(self, given: str, address: str) -> str | None:
        """Returns a new session for the password; None: it is wrong, or too many attempts wait.
        Attempts of one address are handled one by one, and a wrong one costs time, so that guesses
        are few and block nobody else."""
        if self._waiting.get(address, 0) >= _MOST_WAITING:
            return None
        self._waiting[address] = self._waiting.get(address, 0) + 1
        try:
            async with self._lines.setdefault(address, asyncio.Lock()):
                wanted = self._password
                if wanted and hmac.compare_digest(given.encode(), wanted.encode()):
                    return self._session()
                await asyncio.sleep(_WRONG_SECONDS)
                return None
        finally:
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address], self._lines[address]

    def knows_session(self, cookies: str) -> bool:
        """Returns whether a ``Cookie`` header holds a session."""
        for each in cookies.split(";"):  # including cookies of other servers on this host
            name, _, value = each.strip().partition("=")
            if name == self.cookie and _digest(value) in self._sessions:
                return True
        return False

    def knows_peer(self, peer: tuple[str, int] | None) -> bool:
        """Returns whether a connection may be this user's: False where the system attributes it to
        another user of this machine. Beyond this machine the password alone decides."""
        if self._beyond or peer is None:
            return True
        owner = _owner(peer[1], self._port)
        return owner is None or owner in (os.getuid(), 0)

    def _session(self) -> str:
        made = secrets.token_urlsafe(32)
        self._sessions.add(_digest(made))
        return made


class GuardedApp:
    """Wraps the application: refuses requests that may not pass, and adds :data:`HEADERS` to every
    answer."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # WebSockets are not supported: the connection ends
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        if not self._gate.knows_peer(scope.get("client")):
            await _answer(send, 403, _page("This request is refused", "It is another user's."))
            return
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, 403, _page("This request is refused", refusal))
            return
        if await self._entered(scope, receive, send):
            return
        if not self._gate.knows_session(headers.get("cookie", "")):
            await _answer(send, 403, self._door(tried=scope["path"] == "/login"))
            return
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> str | None:
        host = headers.get("host", "")
        if not self._gate.knows_host(host):
            return "It names another host than this server's."
        if scope["method"] in _SAFE:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":  # no page can set it
            return "It comes from a page of another site."
        if site is None and origin is not None and origin != f"http://{host}":
            return "It comes from a page of another origin."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            return f"It is larger than {MOST_BYTES >> 20} MB."
        return None

    async def _entered(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Begins a session if the request needs one, and answers it."""
        session = None
        if scope["path"] == "/open" and scope["method"] == "GET":
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            session = self._gate.begin(given)
        elif scope["path"] == "/login" and scope["method"] == "POST" and self._gate.has_password:
            body = await _body(receive)
            given = parse_qs(body).get("password", [""])[0]
            address = str((scope.get("client") or [""])[0])
            session = await self._gate.begin_by_password(given, address)
        if session is None:
            return False
        # The page redirects itself: the browser sends a strict cookie only from a page of ours.
        cookie = f"{self._gate.cookie}={session}; Path=/; HttpOnly; SameSite=Strict"
        more = '<meta http-equiv="refresh" content="0;url=/">'
        page = _PAGE.format(title="Penstock", body='<p><a href="/">Go on</a></p>', more=more)
        await _answer(send, 200, page, cookie)
        return True

    def _door(self, *, tried: bool) -> str:
        """Returns the page of a browser without a session. ``tried``: by a password that is
        wrong."""
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
        wrong = "This password is wrong. " if tried else ""
        return _page("Penstock", f"{wrong}This server requires its password.", form)


def is_loopback(host: str) -> bool:
    """Returns whether the name or address is a loopback one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _owner(port: int, server: int) -> int | None:
    """Returns the user of a connection from a port of this machine to the server's; None:
    unknown."""
    for path in _LISTS_OF_CONNECTIONS:
        try:
            lines = path.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            ends = [int(fields[n].rpartition(":")[2], 16) for n in (1, 2)]
            if ends == [port, server]:
                return int(fields[7])
    return None


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
    """Ends the connection if a body is larger than declared or allowed."""
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

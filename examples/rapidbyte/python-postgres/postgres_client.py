"""As much of a Postgres client as a destination needs: log in (trust, SCRAM-SHA-256), and
statements by the simple query protocol, over a connection of the host's. No TLS.

Source: Postgres' "Frontend/Backend Protocol", version 3.0; RFC 5802 and 7677 for SCRAM.
"""

import base64
import hashlib
import hmac
import os
import struct
import warnings  # noqa: F401 (hmac imports it when it runs, and a guest imports nothing then)

from rapidbyte_guest.faults import fault
from rapidbyte_guest.tcp import Connection

_PROTOCOL = 3 << 16
_OK, _SASL, _SASL_CONTINUE, _SASL_FINAL = 0, 10, 11, 12
_CATEGORIES = {
    "08": "transient_db", "40": "transient_db", "53": "transient_db", "55": "transient_db",
    "57": "transient_db", "28": "auth", "22": "data", "23": "data", "42": "schema", "3D": "config",
    "3F": "schema",
}  # fmt: skip
"""By the class of the SQLSTATE; another is ``internal``."""


class Server:
    """Raises faults: the server's own errors by their SQLSTATE, the connection's as transient."""

    def __init__(self, config):
        self._password = config.get("password", "")
        self._peer = Connection(config["host"], config.get("port", 5432), patience=300)
        named = {"user": config["user"], "database": config["database"], "client_encoding": "UTF8"}
        pairs = "".join(f"{key}\0{value}\0" for key, value in named.items())
        self._send(b"", struct.pack(">i", _PROTOCOL) + pairs.encode() + b"\0")
        self._log_in()

    def query(self, statement):
        """One statement; what it gives is left out."""
        if "\0" in statement:
            raise fault("data", "NUL", "Postgres keeps no text with a NUL in it", scope="batch")
        self._send(b"Q", statement.encode() + b"\0")
        self._await_ready()

    def close(self):
        self._send(b"X", b"")
        self._peer.close()

    def drop(self):
        """Without a word: a transaction that is open is rolled back."""
        self._peer.close()

    def _send(self, kind, body):
        self._peer.send(kind + struct.pack(">i", len(body) + 4) + body)

    def _message(self):
        kind, size = struct.unpack(">ci", self._peer.receive(5))
        return kind, self._peer.receive(size - 4)

    def _await_ready(self):
        error = None
        while True:
            kind, body = self._message()
            if kind == b"E":
                error = error or _error(body)
            elif kind == b"Z":
                if error is not None:
                    raise error
                return

    def _log_in(self):
        scram = None
        while True:
            kind, body = self._message()
            if kind == b"E":
                raise _error(body)
            if kind != b"R":
                raise fault("internal", "NOT_POSTGRES", f"it answered with {kind!r}")
            asked, rest = struct.unpack_from(">i", body)[0], body[4:]
            if asked == _OK and (scram is None or scram.verified):
                return self._await_ready()
            if asked == _SASL and b"SCRAM-SHA-256" in rest.split(b"\0"):
                scram = Scram(self._password)
                first = scram.first()
                named = b"SCRAM-SHA-256\0" + struct.pack(">i", len(first)) + first
                self._send(b"p", named)
            elif asked == _SASL_CONTINUE and scram is not None:
                self._send(b"p", scram.answer(rest))
            elif asked == _SASL_FINAL and scram is not None:
                scram.verify(rest)
            else:
                raise fault("auth", "LOGIN", f"it wants a way to log in that is not here ({asked})")


class Scram:
    """The client's side of SCRAM-SHA-256. It says no user: Postgres has it already."""

    def __init__(self, password):
        self._password = password.encode()
        self._bare = "n=,r=" + base64.b64encode(os.urandom(18)).decode()
        self._proof_of_server = b""
        self.verified = False

    def first(self):
        return ("n,," + self._bare).encode()

    def answer(self, challenge):
        given = dict(part.split("=", 1) for part in challenge.decode().split(","))
        if not given["r"].startswith(self._bare[5:]):
            raise fault("auth", "SCRAM", "the server did not repeat our nonce")
        salted = _stretched(self._password, base64.b64decode(given["s"]), int(given["i"]))
        last = "c=biws,r=" + given["r"]
        said = f"{self._bare},{challenge.decode()},{last}".encode()
        client = _signed(salted, b"Client Key")
        mask = _signed(hashlib.sha256(client).digest(), said)
        proof = bytes(a ^ b for a, b in zip(client, mask, strict=True))
        self._proof_of_server = _signed(_signed(salted, b"Server Key"), said)
        return f"{last},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, final):
        if final != b"v=" + base64.b64encode(self._proof_of_server):
            raise fault("auth", "SCRAM", "the server does not know the password either")
        self.verified = True


def _signed(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def _stretched(password, salt, times):
    """PBKDF2; ``hashlib`` has it only with OpenSSL, which is not in a guest."""
    keyed = hmac.new(password, digestmod=hashlib.sha256)

    def turn(data):
        one = keyed.copy()
        one.update(data)
        return one.digest()

    block = turn(salt + b"\0\0\0\1")
    mixed = int.from_bytes(block, "big")
    for _ in range(times - 1):
        block = turn(block)
        mixed ^= int.from_bytes(block, "big")
    return mixed.to_bytes(32, "big")


def _error(body):
    fields = {chr(f[0]): f[1:].decode(errors="replace") for f in body.split(b"\0") if f}
    state = fields.get("C", "")
    category = "permission" if state == "42501" else _CATEGORIES.get(state[:2], "internal")
    message = f"{fields.get('M', 'an error without a message')} (SQLSTATE {state})"
    details = {key: fields[key] for key in ("D", "H") if key in fields}  # detail, hint
    return fault(category, f"SQL_{state}", message, details=details or None)

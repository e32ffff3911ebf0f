"""Keeps data of a connector for its next run: keys, which are paths of segments, and JSON values.

The store of a sync is on the host, by HTTP (``RpcStore``), or in memory where the host has none. A
store is an optimisation: a host may lose it, and everything is sent again without it. Every key is
put under ``syncId=...``, so that no two syncs share keys. Source of the calls: the page, "State
management"; both of its hosts' dialects are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

SECONDS = 60.0  # per call
Key = str | Sequence[str]


class StoreError(Exception):
    """The host refused a call or did not answer it."""


class KeyValueStore(Protocol):
    """A key is one segment or several. A prefix matches whole segments; ``()`` matches all."""

    def get(self, key: Key) -> Any:
        """Returns the key's value; None: it is not stored."""
        ...

    def set(self, key: Key, value: Any) -> None: ...

    def delete(self, key: Key) -> None: ...

    def delete_all(self, prefix: Key = ()) -> None: ...

    def entries(self, prefix: Key = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yields keys and values as they arrive: all of them need not fit into memory."""
        ...

    def size(self, prefix: Key = ()) -> int: ...


def segments(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


class InMemoryKeyStore:
    """Keeps keys for the lifetime of the process."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], bytes] = {}

    def get(self, key: Key) -> Any:
        found = self._kept.get(segments(key))
        return None if found is None else msgspec.json.decode(found)

    def set(self, key: Key, value: Any) -> None:
        self._kept[segments(key)] = msgspec.json.encode(value)

    def delete(self, key: Key) -> None:
        self._kept.pop(segments(key), None)

    def delete_all(self, prefix: Key = ()) -> None:
        for key, _ in [*self.entries(prefix)]:
            self.delete(key)

    def entries(self, prefix: Key = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        under = segments(prefix)
        for key in sorted(self._kept):
            if key[: len(under)] == under:
                yield key, msgspec.json.decode(self._kept[key])

    def size(self, prefix: Key = ()) -> int:
        return sum(1 for _ in self.entries(prefix))


class RpcStore:
    """The host's store of one sync. ``environment``: has ``RPC_URL``, and ``RPC_SECRET`` or
    ``RPC_TOKEN`` where the host requires one. Raises ``StoreError``."""

    def __init__(self, environment: Mapping[str, str], sync_id: str) -> None:
        self._url = urlsplit(environment["RPC_URL"])
        self._under = (f"syncId={sync_id}",)
        secret, token = environment.get("RPC_SECRET"), environment.get("RPC_TOKEN")
        self._by_page = bool(secret)
        bearer = secret or token
        self._headers = {"Content-Type": "application/json"}
        if bearer:
            self._headers["Authorization"] = f"Bearer {bearer}"
        self._connection: HTTPConnection | None = None

    def get(self, key: Key) -> Any:
        answer = self._call("get", key=self._path(key))
        if answer == {}:
            return None
        if self._by_page and isinstance(answer, dict):
            wrapped = cast(dict[str, Any], answer)
            return wrapped["value"] if wrapped.keys() == {"value"} else wrapped
        return answer

    def set(self, key: Key, value: Any) -> None:
        self._call("set", key=self._path(key), value=value)

    def delete(self, key: Key) -> None:
        self._call("delete" if self._by_page else "del", key=self._path(key))

    def delete_all(self, prefix: Key = ()) -> None:
        name = "deleteAll" if self._by_page else "deleteByPrefix"
        self._call(name, prefix=self._path(prefix))

    def entries(self, prefix: Key = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        connection = self._connect()  # its own connection: other calls may come between two entries
        try:
            answer = self._send(connection, "list", {"prefix": self._path(prefix)})
            if "ndjson" in (answer.getheader("Content-Type") or ""):
                found = (msgspec.json.decode(line) for line in self._lines(answer))
            else:
                found = iter(msgspec.json.decode(self._read(answer)))
            for entry in found:
                yield tuple(segments(entry["key"]))[len(self._under) :], entry["value"]
        finally:
            connection.close()

    def size(self, prefix: Key = ()) -> int:
        return int(self._call("size", prefix=self._path(prefix))["size"])

    def _path(self, key: Key) -> list[str]:
        return [*self._under, *segments(key)]

    def _call(self, method: str, **body: Any) -> Any:
        kept, self._connection = self._connection, None
        try:
            connection = kept or self._connect()
            answer = self._send(connection, method, body)
        except StoreError:
            if kept is None:
                raise
            connection = self._connect()  # the host had closed the kept connection
            answer = self._send(connection, method, body)
        raw = self._read(answer)
        self._connection = connection
        return msgspec.json.decode(raw) if raw else {}

    def _connect(self) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        return kind(self._url.hostname or "", self._url.port, timeout=SECONDS)

    def _send(
        self, connection: "HTTPConnection", method: str, body: dict[str, Any]
    ) -> "HTTPResponse":
        from http.client import HTTPException

        path = f"{self._url.path.rstrip('/')}/state.{method}"
        headers = self._headers
        if method == "list":
            headers = {**headers, "Accept": "application/x-ndjson, application/json"}
        try:
            connection.request("POST", path, msgspec.json.encode(body), headers)
            answer = connection.getresponse()
        except (OSError, HTTPException) as e:
            connection.close()
            raise StoreError(f"state.{method}: the host does not answer: {e}") from e
        if answer.status != 200:
            raw = self._read(answer)
            connection.close()
            answered = raw[:500].decode(errors="replace")
            raise StoreError(f"state.{method}: the host answered {answer.status}: {answered}")
        return answer

    def _read(self, answer: "HTTPResponse") -> bytes:
        from http.client import HTTPException

        try:
            return answer.read()
        except (OSError, HTTPException) as e:
            raise StoreError(f"the host's answer ended early: {e}") from e

    def _lines(self, answer: "HTTPResponse") -> Iterator[bytes]:
        from http.client import HTTPException

        try:
            while line := answer.readline():
                yield line
        except (OSError, HTTPException) as e:
            raise StoreError(f"the host's list ended early: {e}") from e


class SyncStore:
    """The part of a store in memory that belongs to one sync."""

    def __init__(self, store: KeyValueStore, sync_id: str) -> None:
        self._store, self._under = store, (f"syncId={sync_id}",)

    def get(self, key: Key) -> Any:
        return self._store.get(self._path(key))

    def set(self, key: Key, value: Any) -> None:
        self._store.set(self._path(key), value)

    def delete(self, key: Key) -> None:
        self._store.delete(self._path(key))

    def delete_all(self, prefix: Key = ()) -> None:
        self._store.delete_all(self._path(prefix))

    def entries(self, prefix: Key = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        for key, value in self._store.entries(self._path(prefix)):
            yield key[len(self._under) :], value

    def size(self, prefix: Key = ()) -> int:
        return self._store.size(self._path(prefix))

    def _path(self, key: Key) -> tuple[str, ...]:
        return (*self._under, *segments(key))

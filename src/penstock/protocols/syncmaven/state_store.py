"""Keeps what a Syncmaven connector stores, as keys of its stream: get, set, delete, list by prefix.

Input: keys in wire form, one text or a list of segments; values as JSON text, which is kept exactly
except for white space between tokens. A prefix matches whole segments. Keys belong to one stream of
one pipeline, which a ``syncId`` names, so that two syncs never share a key, whether or not a
connector puts its ``syncId`` into it. Not here: HTTP (``state_rpc_app``), when writes become
durable (``store.keys``). Source: the page, "State management"; the real host's behaviour.
"""

from collections.abc import Iterator

import msgspec

from penstock.model.catalog import StreamId
from penstock.store.keys import LONGEST_PATH, PATH, KeyAddress, KeyPort

Key = str | list[str]


def sync_id(pipeline: str, stream: StreamId) -> str:
    """Returns the ``syncId`` that connectors get and put into their keys. It names the source's
    stream, whatever the destination calls it, so that a destination and the enrichments before it
    find each other's keys."""
    return f"{pipeline}/{stream}"


class BadKey(ValueError):
    """Raised for a key that cannot be stored; its text is for the connector."""


class StateStore:
    """The keys of ``stream``, over the port of the task that runs the connector. Safe for use by
    several threads where the port is. Every method raises what the port raises, and ``BadKey``."""

    def __init__(self, keys: KeyPort, stream: StreamId) -> None:
        self._keys, self._owner = keys, stream.key

    def get(self, key: Key) -> str | None:
        """Returns its JSON text; None: there is none."""
        return self._keys.get(self._place(key))

    def set(self, key: Key, value: bytes) -> None:
        """Stores a key. ``value``: one JSON value. A line break in it would break lists of
        lines."""
        self._keys.put(self._place(key), msgspec.json.format(value, indent=-1).decode())

    def delete(self, key: Key) -> bool:
        return self._keys.delete(self._place(key))

    def delete_all(self, prefix: Key) -> int:
        return self._keys.delete_under(self._place(prefix))

    def size(self, prefix: Key) -> int:
        return self._keys.count_under(self._place(prefix))

    def pages(self, prefix: Key) -> Iterator[list[str]]:
        """Yields entries in wire form, ``{"key": [...], "value": ...}``, sorted by key. A page is
        read when it is requested, so that memory does not grow with the store."""
        under, after = self._place(prefix), None
        while page := self._keys.page_under(under, after):
            after = page[-1][0]
            yield [f'{{"key":[{path[:-1]}],"value":{value}}}' for path, value in page]

    def _place(self, key: Key) -> KeyAddress:
        return KeyAddress(PATH, self._owner, _path(key))


def _path(key: Key) -> str:
    """Returns each segment as JSON text and a comma: a prefix of whole segments is a prefix of the
    text, and the text is the inside of the key's array. ``""`` and ``[]`` are one key, as for the
    real host."""
    segments = [key] if isinstance(key, str) else key
    if segments == [""]:
        return ""
    path = "".join(f"{msgspec.json.encode(segment).decode()}," for segment in segments)
    if len(path.encode()) > LONGEST_PATH:
        raise BadKey(f"a key has at most {LONGEST_PATH} bytes")
    return path

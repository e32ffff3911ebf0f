"""Rejects on disk: JSON lines, the record's original bytes kept (L8).

Written beside the connector by ``engine.worker.sealer`` into the log, moved to the run's folder
when their segment is committed, read by the ``rejects`` verb.
"""

import base64
import os
from collections.abc import Iterable, Iterator

import msgspec

from penstock.model.catalog import StreamId

_ENTRY = 128
"""Bytes of a line beside its reason and its record: the keys, the stream's name, the time."""


class RejectLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """``body`` (``bytes`` on disk) is the text itself, or base64 where ``encoding`` says so (it
    was not UTF-8)."""

    namespace: str | None
    name: str | None
    reason: str
    field: str | None
    body: str = msgspec.field(name="bytes")
    at: str = ""
    encoding: str = "utf-8"
    file: str | None = None

    @property
    def stream(self) -> str | None:
        return None if self.name is None else str(StreamId.of(self.namespace, self.name))

    @property
    def size(self) -> int:
        """Bytes that it takes on disk, about: its words, and its record as it came."""
        return _ENTRY + len(self.reason) + len(self.body)

    @staticmethod
    def of(
        stream: StreamId | None,
        reason: str,
        field: str | None,
        raw: bytes,
        at: str,
        file: str | None = None,
    ) -> "RejectLine":
        """``raw``: the record's bytes, or their beginning where ``file`` (beside this one, in the
        run's folder) has all of them."""
        namespace, name = (None, None) if stream is None else (stream.namespace, stream.name)
        try:
            return RejectLine(namespace, name, reason, field, raw.decode(), at, file=file)
        except UnicodeDecodeError:
            text = base64.b64encode(raw).decode()
            return RejectLine(namespace, name, reason, field, text, at, "base64", file)


def encode_rejects(rejects: Iterable[RejectLine]) -> bytes:
    return b"".join(msgspec.json.encode(r) + b"\n" for r in rejects)


def decode_rejects(raw: bytes) -> Iterator[RejectLine]:
    return iter(msgspec.json.Decoder(RejectLine).decode_lines(raw))


def rejects_path(epoch: int, file: str) -> str:
    """The path in the log, relative, of a file in an epoch's folder of rejects."""
    return f"epochs/{epoch:08d}/rejects/{os.path.basename(file)}"


def kept_name(path: str) -> str:
    """The name that a file of rejects of the log has in the run's folder: unique, and the same
    whenever it is copied again."""
    epoch, _, name = path.split("/")[-3:]
    return f"{epoch}-{name}"

"""Encodes rejects as JSON lines with the record's original bytes (L8), and names their files.

Neighbours: ``engine.worker.sealer`` writes them into the log next to the connector,
``engine.log.kept_rejects`` copies them to the run's folder when their segment is committed, the
``rejects`` command reads them.
"""

import base64
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.model.catalog import StreamId

_ENTRY = 128
"""Bytes of a line without its reason and record: the keys, the stream's name, the time."""


class RejectLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reject. ``body`` (``bytes`` on disk): the record as text, or as base64 where ``encoding``
    is ``base64`` (the record was not UTF-8). ``file``: a file in the same folder with the whole
    record; ``body`` then has its beginning. ``key``: the primary key by the source's names, where a
    destination rejected the row. ``attempt``: in how many consecutive runs it was rejected, where
    such rows are retried. ``generation``: of the stream, where ``body`` is the record as the source
    sent it, so that it can be decoded again; None: it is not, or an earlier version of Penstock
    wrote the line. ``full``: its stream was read in full."""

    namespace: str | None
    name: str | None
    reason: str
    field: str | None
    body: str = msgspec.field(name="bytes")
    at: str = ""
    encoding: str = "utf-8"
    file: str | None = None
    key: dict[str, Any] | None = None
    attempt: int = 1
    generation: int | None = None
    full: bool = False

    @property
    def stream(self) -> str | None:
        return None if self.name is None else str(StreamId(self.namespace, self.name))

    @property
    def raw(self) -> bytes:
        """Returns the record's bytes, or their beginning where ``file`` has all of them."""
        return base64.b64decode(self.body) if self.encoding == "base64" else self.body.encode()

    @property
    def size(self) -> int:
        """Estimates the bytes that the line takes on disk: its reason, its record, and a constant
        for the rest."""
        return _ENTRY + len(self.reason) + len(self.body)

    @staticmethod
    def of(
        stream: StreamId | None,
        reason: str,
        field: str | None,
        raw: bytes,
        at: str,
        file: str | None = None,
        key: dict[str, Any] | None = None,
        generation: int | None = None,
        *,
        full: bool = False,
    ) -> "RejectLine":
        """Builds a line. ``raw``: the record's bytes, or their beginning where ``file`` (in the
        same folder of the run) has all of them. ``at``: time as ISO 8601."""
        namespace, name = (None, None) if stream is None else (stream.namespace, stream.name)
        try:
            text, encoding = raw.decode(), "utf-8"
        except UnicodeDecodeError:
            text, encoding = base64.b64encode(raw).decode(), "base64"
        return RejectLine(
            namespace, name, reason, field, text, at, encoding, file, key,
            generation=generation, full=full,
        )  # fmt: skip


def encode_rejects(rejects: Iterable[RejectLine]) -> bytes:
    """Encodes rejects as JSON lines."""
    return b"".join(msgspec.json.encode(r) + b"\n" for r in rejects)


def decode_rejects(raw: bytes) -> Iterator[RejectLine]:
    """Decodes JSON lines into rejects. Raises ``msgspec.DecodeError`` while it is iterated."""
    return iter(msgspec.json.Decoder(RejectLine).decode_lines(raw))


def rejects_path(epoch: int, file: str) -> str:
    """Returns the path, relative to the log, of a file in an epoch's folder of rejects."""
    return f"epochs/{epoch:08d}/rejects/{os.path.basename(file)}"


def kept_name(path: str) -> str:
    """Returns the file name in the run's folder for a reject file of the log: unique in the
    pipeline, and the same for every repetition of the copy."""
    epoch, _, name = path.split("/")[-3:]
    return f"{epoch}-{name}"

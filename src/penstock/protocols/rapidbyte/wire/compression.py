"""Compresses frames while they wait in a queue between two stages, and decompresses them before a
connector gets them.

Not here: compression inside a frame, which is Arrow's own (``frame_check`` bounds it). Source: the
protocol, section 6 ("host-side channel compression").
"""

from dataclasses import dataclass
from typing import Any, Literal, cast

Bytes = bytes | bytearray | memoryview
Codec = Literal["lz4", "zstd"]
_CODECS = {"lz4": "lz4_raw", "zstd": "zstd"}
_LEVEL = 1  # of zstd


@dataclass(frozen=True, slots=True)
class CompressedFrame:
    """A compressed frame. ``size``: bytes after decompression."""

    data: Bytes
    size: int
    codec: Codec

    def __len__(self) -> int:
        return len(self.data)


def compress(data: Bytes, codec: Codec | None) -> Bytes | CompressedFrame:
    """Compresses a frame. Returns it unchanged without a codec, or where compression would not make
    it smaller."""
    if codec is None:
        return data
    compressed = cast(bytes, _codec(codec).compress(data, asbytes=True))
    return CompressedFrame(compressed, len(data), codec) if len(compressed) < len(data) else data


def decompress(data: Bytes | CompressedFrame) -> Bytes:
    """Decompresses what :func:`compress` returned; an uncompressed frame is returned unchanged."""
    if not isinstance(data, CompressedFrame):
        return data
    whole = _codec(data.codec).decompress(data.data, decompressed_size=data.size)
    return memoryview(whole).cast("B")


def _codec(codec: Codec) -> Any:
    import pyarrow as pa

    level = _LEVEL if codec == "zstd" else None
    return pa.Codec(_CODECS[codec], compression_level=level)

"""Optional compression of frames while they wait between two stages; no connector sees it.

Source: the protocol, section 6 ("host-side channel compression").
"""

from dataclasses import dataclass
from typing import Any, Literal, cast

Bytes = bytes | bytearray | memoryview
Codec = Literal["lz4", "zstd"]
_CODECS = {"lz4": "lz4_raw", "zstd": "zstd"}
_LEVEL = 1  # of zstd


@dataclass(frozen=True, slots=True)
class Squeezed:
    """``size``: bytes when expanded."""

    data: Bytes
    size: int
    codec: Codec

    def __len__(self) -> int:
        return len(self.data)


def squeeze(data: Bytes, codec: Codec | None) -> Bytes | Squeezed:
    """As it is without a codec, or where squeezing would not make it smaller."""
    if codec is None:
        return data
    smaller = cast(bytes, _codec(codec).compress(data, asbytes=True))
    return Squeezed(smaller, len(data), codec) if len(smaller) < len(data) else data


def expand(data: Bytes | Squeezed) -> Bytes:
    if not isinstance(data, Squeezed):
        return data
    whole = _codec(data.codec).decompress(data.data, decompressed_size=data.size)
    return memoryview(whole).cast("B")


def _codec(codec: Codec) -> Any:
    import pyarrow as pa

    level = _LEVEL if codec == "zstd" else None
    return pa.Codec(_CODECS[codec], compression_level=level)

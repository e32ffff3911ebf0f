"""Encodes Arrow batches as frames (Arrow IPC streams) and splits frames that are larger than a
connector takes.

Input: batches or frames that Penstock made. Output: frames as bytes. Not here: frames that a
connector made, which must be validated first (``frame_check``). Source: the protocol, section 6.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import refusal


def split_frames(frames: Iterable[Bytes], limit: int) -> Iterator[Bytes]:
    """Yields the same rows in the same order in frames of at most ``limit`` bytes each. Raises
    ``Refusal``: ``RECORD_TOO_LARGE`` for one row that alone is larger, ``FRAME_DECODE`` for a frame
    that must be split and is not an Arrow stream."""
    for frame in frames:
        if len(frame) <= limit:
            yield frame
        else:
            yield from _cut(frame, limit)


def _cut(frame: Bytes, limit: int) -> Iterator[Bytes]:
    """Splits one frame, which is not validated. The batches share its memory."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
            batches: list[Any] = list(reader)
    except (pa.ArrowInvalid, OSError) as e:
        raise refusal(
            "frame",
            "FRAME_DECODE",
            f"a frame of {len(frame)} bytes is not an Arrow stream: {e}",
            scope="batch",
        ) from e
    for batch in batches:
        for piece, _ in frames_of(batch, limit):
            yield piece


def frames_of(batch: Any, limit: int) -> Iterator[tuple[Bytes, int]]:
    """Encodes one batch as frames of at most ``limit`` bytes, each with its number of rows. Raises
    ``Refusal`` (``RECORD_TOO_LARGE``). The batch is halved by rows until each half fits: rows
    differ in size, so the number of frames cannot be computed from the size of the whole."""
    whole = frame_of(batch)
    if len(whole) <= limit:
        yield whole, batch.num_rows
        return
    if batch.num_rows < 2:
        raise refusal(
            "data",
            "RECORD_TOO_LARGE",
            f"one record needs {len(whole)} bytes; a batch may have {limit}",
            scope="record",
        )
    middle = batch.num_rows // 2
    yield from frames_of(batch.slice(0, middle), limit)
    yield from frames_of(batch.slice(middle), limit)


def frame_of(batch: Any) -> memoryview:
    """Encodes one batch as one complete Arrow IPC stream: schema, batch, end marker."""
    import pyarrow as pa

    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")

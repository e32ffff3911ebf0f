"""Frames of our own as Arrow IPC streams: cut where they are larger than a connector takes.

Everything else treats a frame as bytes; only here are they looked into. What a connector made is
for ``frame_check``. Source: the protocol, section 6.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.protocols.rapidbyte.wire.compression import Bytes
from penstock.protocols.rapidbyte.wire.messages import refusal


def fitting(frames: Iterable[Bytes], limit: int) -> Iterator[Bytes]:
    """The same rows in the same order, no frame above ``limit`` bytes. Raises ``Refusal``
    (``RECORD_TOO_LARGE``) for a row that alone is larger, and (``FRAME_DECODE``) for a frame that
    must be cut and is no Arrow stream."""
    for frame in frames:
        if len(frame) <= limit:
            yield frame
        else:
            yield from _cut(frame, limit)


def _cut(frame: Bytes, limit: int) -> Iterator[Bytes]:
    """``frame``: not checked; its batches share its memory."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.py_buffer(frame)) as reader:
            batches: list[Any] = list(reader)
    except (pa.ArrowInvalid, OSError) as e:
        raise refusal(
            "frame",
            "FRAME_DECODE",
            f"a frame of {len(frame)} bytes is no Arrow stream: {e}",
            scope="batch",
        ) from e
    for batch in batches:
        yield from _pieces(batch, limit)


def _pieces(batch: Any, limit: int) -> Iterator[Bytes]:
    """Halved until it fits: sizes of rows differ, so that equal counts prove nothing."""
    whole = frame_of(batch)
    if len(whole) <= limit:
        yield whole
        return
    if batch.num_rows < 2:
        raise refusal(
            "data",
            "RECORD_TOO_LARGE",
            f"one record needs {len(whole)} bytes; a batch may have {limit}",
            scope="record",
        )
    middle = batch.num_rows // 2
    yield from _pieces(batch.slice(0, middle), limit)
    yield from _pieces(batch.slice(middle), limit)


def frame_of(batch: Any) -> memoryview:
    """One batch as one complete stream: schema, batch, end."""
    import pyarrow as pa

    sink: Any = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")

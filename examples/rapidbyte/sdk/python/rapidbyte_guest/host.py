"""What a connector says to its host, in one call each: frames, checkpoints, metrics, logs, dead
letters, its own state, and the summary at the end.

Source: the protocol, sections 3 and 4. Neighbours: ``arrow`` (columns), ``faults`` (errors),
``tcp``.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from wit_world.imports import host, types

from rapidbyte_guest import arrow_read, arrow_write
from rapidbyte_guest.arrow import Column
from rapidbyte_guest.faults import fault

ERROR, WARN, INFO, DEBUG, TRACE = range(5)
PIPELINE, STREAM, INSTANCE = range(3)
_SOURCE, _DESTINATION, _TRANSFORM = range(3)
_COUNTER = "counter"


# -- frames


def emit(columns: Sequence[Column]) -> int:
    """One batch to the next stage, as one frame; gives its bytes. Waits while that is behind."""
    data = arrow_write.encode(columns)
    frame = host.frame_new(len(data))
    host.frame_write(frame, data)
    host.frame_seal(frame)
    host.emit_batch(frame)
    return len(data)


def frames() -> Iterator[tuple[list[list[Column]], int]]:
    """What the stage before sends: the batches of each frame (nearly always one), and its bytes. An
    ``Err`` out of this says that the stage before failed: nothing may be committed then."""
    while (frame := host.next_batch()) is not None:
        data = host.frame_read(frame, 0, host.frame_len(frame))
        host.frame_drop(frame)
        try:
            yield list(arrow_read.batches(data)), len(data)
        except arrow_read.NotReadable as e:
            raise fault("frame", "NOT_READABLE", str(e), scope="batch") from e


# -- progress


def source_checkpoint(stream: str, field: str, value: dict[str, Any], rows: int, size: int) -> None:
    """All rows up to this cursor were emitted before. ``value``: ``{"type": "int64", "value": 7}``;
    ``rows``, ``size``: since the run began."""
    _checkpoint(_SOURCE, "source", 0, stream, rows, size, cursor_field=field, cursor_value=value)


def destination_checkpoint(number: int, stream: str, rows: int, size: int) -> None:
    """All that was taken so far is durable. ``number``: 1, 2, 3, ..."""
    _checkpoint(_DESTINATION, "dest", number, stream, rows, size)


def transform_checkpoint(number: int, stream: str, rows: int, size: int) -> None:
    """Kept and reported; moves nothing."""
    _checkpoint(_TRANSFORM, "transform", number, stream, rows, size)


def _checkpoint(
    kind: int, word: str, number: int, stream: str, rows: int, size: int, **more: Any
) -> None:
    document = {
        "id": number, "kind": word, "stream": stream, "records_processed": rows,
        "bytes_processed": size, **more,
    }  # fmt: skip
    host.checkpoint(kind, json.dumps(document))


def last_value(context: dict[str, Any]) -> Any:
    """Of the cursor, as the last run left it; None on the first. v4 sends it as text whatever the
    column's type is."""
    return ((context.get("cursor_info") or {}).get("last_value") or {}).get("value")


# -- telling


def log(level: int, message: str) -> None:
    host.log(level, message)


def count(name: str, by: int, **labels: str) -> None:
    """Adds to a counter."""
    metric(name, by, _COUNTER, **labels)


def metric(name: str, value: float, kind: str, **labels: str) -> None:
    """``kind``: ``counter``, ``gauge`` or ``histogram``."""
    document = {
        "name": name, "value": {"type": kind, "value": value},
        "labels": [[key, text] for key, text in labels.items()],
    }  # fmt: skip
    host.metric(json.dumps(document))


def dead_letter(stream: str, record: dict[str, Any], message: str, category: str = "data") -> None:
    """Put a record aside instead of passing it on. It is in the run's rejects then."""
    host.emit_dlq_record(stream, json.dumps(record, default=str), message, category)


# -- its own state; durable with the next checkpoint


def get(scope: int, key: str) -> str | None:
    return host.state_get(scope, key)


def put(scope: int, key: str, value: str) -> None:
    host.state_put(scope, key, value)


def swap(scope: int, key: str, expected: str | None, new: str) -> bool:
    """Where the value is still the expected one; False: it is not, and nothing was written."""
    return host.state_cas(scope, key, expected, new)


# -- answers


def success(message: str) -> Any:
    return _report(types.ValidationStatus.SUCCESS, message)


def failed(message: str) -> Any:
    return _report(types.ValidationStatus.FAILED, message)


def _report(status: Any, message: str) -> Any:
    return types.ValidationReport(status=status, message=message, warnings=[])


def read_summary(rows: int, size: int, batches: int, checkpoints: int) -> Any:
    part = types.ReadSummary(
        records_read=rows,
        bytes_read=size,
        batches_emitted=batches,
        checkpoint_count=checkpoints,
        records_skipped=0,
    )
    role = types.ConnectorRole.SOURCE
    return types.RunSummary(role=role, read=part, write=None, transform=None)


def write_summary(rows: int, size: int, batches: int, checkpoints: int, failed: int = 0) -> Any:
    part = types.WriteSummary(
        records_written=rows,
        bytes_written=size,
        batches_written=batches,
        checkpoint_count=checkpoints,
        records_failed=failed,
    )
    role = types.ConnectorRole.DESTINATION
    return types.RunSummary(role=role, read=None, write=part, transform=None)


def transform_summary(
    rows_in: int, rows_out: int, size_in: int, size_out: int, batches: int
) -> Any:
    part = types.TransformSummary(
        records_in=rows_in,
        records_out=rows_out,
        bytes_in=size_in,
        bytes_out=size_out,
        batches_processed=batches,
    )
    role = types.ConnectorRole.TRANSFORM
    return types.RunSummary(role=role, read=None, write=None, transform=part)

"""Encodes the rows of parts as RECORD messages.

A separate module because it needs PyArrow, which ``spec``, ``check`` and ``plan`` must not load.
Not here: the JSON of values (``codec.json_lines_encoder``).
"""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.codec.json_lines_encoder import LineEncoder, Slot
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import StreamId
from penstock.model.types import CHANGES, RowSchema
from penstock.protocols.airbyte.enums import ChangeKind, ChangeReason, MessageType


class RecordLines:
    """Encodes the rows of one stream under one schema."""

    def __init__(self, target: StreamId, schema: RowSchema) -> None:
        named = {"stream": target.name}
        if target.namespace is not None:
            named["namespace"] = target.namespace
        head = json.dumps({"type": MessageType.record.value, "record": named})
        template = [
            f'{head[:-2]},"emitted_at":',
            Slot.extracted_ms,
            ',"data":',
            Slot.data,
            ',"meta":{"changes":',
            Slot.changes,
            "}}}",
        ]
        self._encoder = LineEncoder(schema, template)

    def encode(self, batch: Any) -> Any:
        """Returns the lines of a ``pyarrow.RecordBatch`` of a part."""
        return self._encoder.encode(_in_known_words(batch))


_KINDS = [c.value for c in ChangeKind]
_REASONS = [r.value for r in ChangeReason]


def _in_known_words(batch: Any) -> Any:
    """Replaces changes and reasons that this protocol lacks by NULLED and
    DESTINATION_TYPECAST_ERROR, since destinations of the connector kit fail at an unknown
    change."""
    index = batch.schema.get_field_index(CHANGES)
    lists = batch.column(index)
    entries = lists.flatten()
    if not len(entries):
        return batch
    words = [
        pc.fill_null(pc.struct_field(entries, "field"), ""),
        _known(pc.struct_field(entries, "change"), _KINDS, ChangeKind.nulled),
        _known(pc.struct_field(entries, "reason"), _REASONS, ChangeReason.destination_typecast),
    ]
    fields = [pa.field(n, pa.string()) for n in ("field", "change", "reason")]
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), lengths]))
    changed = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays(words, fields=fields))
    return batch.set_column(index, CHANGES, changed)


def _known(words: Any, known: Sequence[str], other: str) -> Any:
    inside = pc.is_in(words, value_set=pa.array(known, pa.string()))
    return pc.if_else(inside, words, pa.scalar(str(other), pa.string()))

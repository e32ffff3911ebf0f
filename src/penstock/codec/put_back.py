"""Puts undeclared properties (the column ``EXTRA`` of ``model.types``) back into the records that
they came in, for destinations whose records may have any.

A record whose declared objects lack some of their properties, or of which a property was declared
only later, is merged individually; in any other, the properties are written after the declared
ones. Neighbours: ``codec.json_lines_encoder`` calls it; ``codec.undeclared_json`` makes the
column."""

import json
from itertools import zip_longest
from typing import Any, cast

from penstock.codec import bodies, json_text
from penstock.codec.body_repair import Number, encoded
from penstock.codec.json_text import Text
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import EXTRA, RowSchema

RecordBatch = Any  # pyarrow.RecordBatch


class PutBack:
    """Puts the properties back into the records of one schema, which has the column."""

    def __init__(self, schema: RowSchema) -> None:
        self._known = pa.array([f.source for f in schema.properties.fields], pa.string())

    def into(self, record: list[Text], batch: RecordBatch) -> list[Text]:
        """Returns the texts of the records. ``record``: the texts of their declared properties, an
        object per row, of which the last is its end."""
        extra = batch.column(EXTRA)
        if extra.null_count == len(extra):
            return record
        if not len(self._known):
            return [pc.fill_null(extra, "{}")]
        tail = pc.binary_join_element_wise(",", pc.utf8_slice_codeunits(extra, 1), "")
        texts = [*record[:-1], pc.fill_null(tail, "}")]
        inside = self._inside(extra)
        if not len(inside):
            return texts
        whole = json_text.join_texts(record, len(extra))
        merged = [merged_text(whole[i].as_py(), extra[i].as_py()) for i in inside.to_pylist()]
        texts = json_text.join_texts(texts, len(extra))
        every = pc.indices_nonzero(pa.repeat(True, len(extra))).cast(inside.type)
        mask = pc.is_in(every, inside)
        return [pc.replace_with_mask(texts, mask, pa.array(merged, pa.string()))]

    def _inside(self, extra: Array) -> Array:
        """Returns the rows that have an undeclared property inside a declared one, in order."""
        keys = bodies.keys(extra, "$")
        rows = pc.list_parent_indices(keys)
        return pc.unique(rows.filter(pc.is_in(keys.flatten(), self._known)))


def merged_text(record: str, extra: str) -> str:
    """Returns the text of ``record`` with the properties of ``extra``, both JSON objects."""
    one, other = (
        json.loads(text, parse_float=Number, parse_int=Number) for text in (record, extra)
    )
    return encoded(_merged(one, other))


def _merged(record: Any, extra: Any) -> Any:
    if record is None or extra is None:
        return extra if record is None else record
    if isinstance(record, dict) and isinstance(extra, dict):
        more = cast(dict[str, Any], extra)
        found = cast(dict[str, Any], record)
        return found | {name: _merged(found.get(name), value) for name, value in more.items()}
    if isinstance(record, list) and isinstance(extra, list):
        pairs = zip_longest(cast(list[Any], record), cast(list[Any], extra))
        return [_merged(one, other) for one, other in pairs]
    return record

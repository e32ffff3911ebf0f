"""Makes one JSON object per row from a record's undeclared properties: the column ``EXTRA`` of
``model.types``.

Properties inside objects and lists keep their place there: ``{"user":{"email":"a@x"}}``,
``{"items":[null,{"qty":3}]}``. Values are the record's own texts, every digit kept; null ones are
left out. Works by column on what ``codec.undeclared`` reads with the schema; a record with names
that cannot be read in this way is handled individually (:func:`of_body`). :func:`put_back` is the
opposite. Neighbours: ``codec.decode`` adds the column, ``codec.json_lines_encoder`` puts it back
into records."""

import json
from collections.abc import Collection, Sequence
from typing import Any, cast

from penstock.codec import json_text
from penstock.codec.body_repair import Number, encoded
from penstock.codec.undeclared import MAX_NAMES, Undeclared, UndeclaredProperties
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import FieldPath
from penstock.model.types import (
    DataType,
    Field,
    Kind,
    MissingColumns,
    Origin,
    RowSchema,
    UndeclaredPolicy,
)


class UndeclaredValues:
    """Makes the column of one decoder, and decides what is kept. ``read``: what is read from each
    record; ``schema``: its columns. ``closed``: paths of objects whose undeclared properties are
    dropped whatever the policy. ``mark``: the property that marks deletes, which always gets a
    column."""

    def __init__(
        self,
        read: UndeclaredProperties,
        schema: RowSchema,
        policy: UndeclaredPolicy,
        closed: Collection[FieldPath],
        mark: str | None = None,
    ) -> None:
        self._mark = mark
        self._read, self._closed = read, frozenset(closed)
        self._policy, self._has_column = policy, schema.extra is not None
        own = sum(f.origin is Origin.undeclared for f in schema.fields)
        self._left = max(MAX_NAMES - own, 0)  # more columns that the schema may get

    def keeps(self, at: FieldPath) -> bool:
        """Returns whether the undeclared properties of the object at ``at`` are to be kept."""
        return self._policy is not UndeclaredPolicy.drop and at not in self._closed

    def kept(self, found: Sequence[Undeclared]) -> tuple[list[Undeclared], list[Undeclared]]:
        """Returns those that the column has, and those that are dropped."""
        kept = [e for e in found if self._has_column and self.keeps(e.at)]
        return kept, [e for e in found if e not in kept]

    def missing(self, found: Sequence[Undeclared]) -> MissingColumns | None:
        """Returns the columns that the schema needs for what is to be kept; None: it lacks none."""
        mark = [e.name for e in found if not e.at and e.name is not None and e.name == self._mark]
        kept = [e for e in found if self.keeps(e.at) and (e.at or e.name not in mark)]
        names: list[str] = []
        if self._policy is UndeclaredPolicy.columns:
            names = [e.name for e in kept if not e.at and e.name is not None][: self._left]
        extra = not self._has_column and len(kept) > len(names)
        return MissingColumns((*mark, *names), extra) if mark or names or extra else None

    def column(self, texts: Sequence[Array], rows: int) -> Array:
        """Returns the column of all rows. ``texts``: the columns of ``read.fields``."""
        made = self._object(texts, self._read.fields, ())
        return pa.nulls(rows, pa.string()) if made is None else made

    def of_body(self, body: bytes) -> str | None:
        """Returns the text of one row; None: NULL. ``body``: a JSON object, as it is read."""
        record = json.loads(body, parse_float=Number, parse_int=Number)
        found = self._inside(record, self._read.columns(), ())
        return None if found is None else encoded(found)

    def _object(
        self, texts: Sequence[Array], fields: Sequence[Field], at: FieldPath
    ) -> Array | None:
        pieces: list[Array] = []
        for text, field in zip(texts, fields, strict=True):
            if self._read.counts(at, field.source):
                found = text if self.keeps(at) else None
            elif self._read.ignores(at, field.source):
                found = None
            else:
                found = self._below(text, field.type, (*at, field.source))
            if found is not None and found.null_count < len(found):
                key = f",{json_text.name(field.source)}:"
                whole = pc.binary_join_element_wise(pa.scalar(key), found, "")
                pieces.append(pc.fill_null(whole, ""))
        if not pieces:
            return None
        joined = pc.binary_join_element_wise(*pieces, "")
        members = pc.utf8_slice_codeunits(joined, 1)
        objects = pc.binary_join_element_wise("{", members, "}", "")
        return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), objects)

    def _below(self, text: Array, of: DataType, at: FieldPath) -> Array | None:
        if of.kind is Kind.struct:
            return self._object(text.flatten(), of.fields, at)
        if of.kind is not Kind.array or of.item is None:
            return None
        items = self._below(text.values, of.item, at)
        if items is None or items.null_count == len(items):
            return None
        buffers = text.buffers()[:2]
        filled = pc.fill_null(items, "null")
        lists = pa.Array.from_buffers(
            pa.list_(pa.string()), len(text), buffers, text.null_count, children=[filled]
        )
        kept = pa.Array.from_buffers(
            pa.list_(pa.string()), len(text), buffers, text.null_count, children=[items]
        )
        having = pc.list_parent_indices(kept).filter(kept.flatten().is_valid())
        every = pc.indices_nonzero(pa.repeat(True, len(text))).cast(having.type)
        has = pc.is_in(every, pc.unique(having))
        joined = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
        return pc.if_else(has, joined, pa.scalar(None, pa.string()))

    def _inside(self, value: Any, fields: Sequence[Field], at: FieldPath) -> Any:
        """Returns the undeclared properties of one object and of those below it; None: it has
        none."""
        if not isinstance(value, dict):
            return None
        known = {f.source: f.type for f in fields}
        found: dict[str, Any] = {}
        for name, inner in cast(dict[str, Any], value).items():
            if inner is None or self._read.ignores(at, name):
                continue
            if name not in known:
                kept = inner if self.keeps(at) else None
            else:
                kept = self._item(inner, known[name], (*at, name))
            if kept is not None:
                found[name] = kept
        return found or None

    def _item(self, value: Any, of: DataType, at: FieldPath) -> Any:
        if of.kind is Kind.struct:
            return self._inside(value, of.fields, at)
        if of.kind is not Kind.array or of.item is None or not isinstance(value, list):
            return None
        items = [self._item(one, of.item, at) for one in cast(list[Any], value)]
        return items if any(one is not None for one in items) else None

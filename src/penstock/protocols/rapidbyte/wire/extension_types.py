"""Reads Arrow batches without their extension types: as their storage types.

Frames may use types that Arrow has beyond its own (``arrow.uuid``). v4 has none of them: a host
without the type reads the storage. Zero-copy, at any depth. Neighbour: ``frame_check`` validates
the result.
"""

from typing import Any

import pyarrow as pa

from penstock.codec.untyped import ArrowField, ArrowSchema, ArrowType


def stored_schema(schema: ArrowSchema) -> ArrowSchema:
    """Returns the schema without extension types; ``schema`` itself where it has none."""
    if not any(_is_extended(field.type) for field in schema):
        return schema
    return pa.schema([_stored_field(field) for field in schema])


def stored(batch: Any, schema: ArrowSchema) -> Any:
    """Returns a ``pyarrow.RecordBatch`` under its :func:`stored_schema`. It need not be valid."""
    return pa.record_batch(_Stored(batch, schema))


class _Stored:
    """Offers a batch's buffers under another schema (Arrow's C interface): casts do not support
    views, unions and runs of extension types."""

    def __init__(self, batch: Any, schema: ArrowSchema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        del requested_schema
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def _stored_field(field: ArrowField) -> ArrowField:
    return field.with_type(_stored_type(field.type))


def _stored_type(kind: ArrowType) -> ArrowType:
    types = pa.types
    if not _is_extended(kind):
        return kind
    if isinstance(kind, pa.BaseExtensionType):
        return _stored_type(kind.storage_type)
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _stored_type(kind.value_type), kind.ordered)
    if types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _stored_type(kind.value_type))
    if types.is_map(kind):
        key, item = _stored_field(kind.key_field), _stored_field(kind.item_field)
        return pa.map_(key, item, kind.keys_sorted)
    inner = [_stored_field(kind.field(i)) for i in range(kind.num_fields)]
    if types.is_union(kind):
        return pa.union(inner, kind.mode, kind.type_codes)
    if types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    return next((of(inner[0]) for is_kind, of in _LISTS if is_kind(kind)), pa.struct(inner))


def _is_extended(kind: ArrowType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return True
    if pa.types.is_dictionary(kind):
        return _is_extended(kind.value_type)
    return any(_is_extended(kind.field(i).type) for i in range(kind.num_fields))


_LISTS: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)

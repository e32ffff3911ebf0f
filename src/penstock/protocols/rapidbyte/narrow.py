"""Frames whose columns have only the types that v4's own destination takes; the others are cast.

v4's Postgres destination takes Int16, Int32, Int64, Float32, Float64, Boolean, Utf8, Timestamp in
microseconds without a zone, Date32, Binary and Null, and refuses a batch with any other. No value
is rounded: what has no such type without loss becomes its text (unsigned 64 bits, decimals, times,
nested values as JSON), and nanoseconds that microseconds cannot hold are refused. Frames that need
nothing pass as they are. Not here: the connector's answer to a type it still does not take.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.protocols.rapidbyte.ipc import batches_of, frame_of
from penstock.protocols.rapidbyte.messages import refusal
from penstock.protocols.rapidbyte.squeeze import Bytes


def narrowed(frames: Iterable[Bytes]) -> Iterator[Bytes]:
    """The same rows in the same order. Raises ``Refusal`` (``FRAME_DECODE``, ``NOT_CASTABLE``)."""
    import pyarrow as pa

    known: dict[Any, bool] = {}
    for frame in frames:
        schema, batches = batches_of(frame)
        if schema not in known:
            known[schema] = all(target(f.type) == f.type for f in schema)
        if known[schema]:
            yield frame
            continue
        for batch in batches:
            columns = [
                _cast(name, column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            fields = [
                pa.field(f.name, c.type, f.nullable, f.metadata)
                for f, c in zip(batch.schema, columns, strict=True)
            ]
            yield frame_of(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))


def target(kind: Any) -> Any:
    """The type that a column of this type is given as."""
    import pyarrow as pa
    from pyarrow import types as t

    if isinstance(kind, pa.BaseExtensionType):
        return target(kind.storage_type)
    if t.is_dictionary(kind):
        return target(kind.value_type)
    integers = {
        pa.int8(): pa.int16(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(), pa.float16(): pa.float32(), pa.date64(): pa.date32(),
    }  # fmt: skip
    kept = {
        pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.utf8(),
        pa.date32(), pa.binary(), pa.null(),
    }  # fmt: skip
    if kind in kept:
        return kind
    if kind in integers:
        return integers[kind]
    if t.is_timestamp(kind):
        return pa.timestamp("us")
    if t.is_duration(kind):
        return pa.int64()
    binary = t.is_large_binary(kind) or t.is_binary_view(kind) or t.is_fixed_size_binary(kind)
    return pa.binary() if binary else pa.utf8()


def _cast(name: str, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types as t

    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if t.is_dictionary(column.type):
        column = column.dictionary_decode()
    wanted = target(column.type)
    if column.type == wanted:
        return column
    try:
        if t.is_nested(column.type):
            return _as_json(column)
        if t.is_timestamp(column.type) and column.type.tz is not None:
            # Stored as UTC whatever the zone, so dropping its name keeps the instant.
            column = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(
                pa.timestamp(column.type.unit)
            )
        return pc.cast(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise refusal(
            "data", "NOT_CASTABLE", f"column {name} ({column.type}) cannot become {wanted}: {e}",
            scope="batch",
        ) from e  # fmt: skip


def _as_json(column: Any) -> Any:
    import pyarrow as pa

    from penstock.codec.duck import ask

    texts = ask("SELECT CAST(to_json(b) AS VARCHAR) AS t FROM bodies", column).column("t")
    return pa.concat_arrays(texts.chunks).cast(pa.utf8()) if texts.num_chunks else (
        pa.array([], pa.utf8())
    )  # fmt: skip

"""Names the Arrow types that a component's frames may have, and casts columns back to them.

A part has one Arrow type for each kind (64-bit integers, doubles, microseconds). A destination that
takes frames may compare them with its table, so its input must have the types of the source's own
frames. The name of such a type goes with the column: as metadata of its field in tables
(``codec.arrow.frame_types_of``), as ``Field.frame_type`` in schemas. Dictionaries, decimals, times
of day and nested types have no name: they stay as their kind has them. Neighbour: ``codec.columns``
casts the other way."""

import re
from collections.abc import Mapping

from penstock.codec.arrow import arrow_type, frame_types_of, with_frame_types
from penstock.codec.columns import data_type
from penstock.codec.untyped import Array, ArrowType, Table, pa
from penstock.codec.untyped import compute as pc

_PARAMETERS = re.compile(r"timestamp\[(\w+), tz=(.*)\]|fixed_size_binary\[(\d+)\]", re.DOTALL)


def name_of(arrow: ArrowType) -> str | None:
    """Returns the name of a type that a column is cast back to; None for the type that its kind has
    in frames anyway, and for a type that it cannot be cast back to."""
    types = pa.types
    narrow = types.is_integer(arrow) or types.is_floating(arrow)
    other = (
        types.is_date64(arrow) or types.is_timestamp(arrow) or types.is_large_string(arrow)
        or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow)
    )  # fmt: skip
    own = (pa.int64(), pa.float64(), pa.timestamp("us"))
    return str(arrow) if (narrow or other) and arrow not in own else None


def marked(frames: Table) -> Table:
    """Returns rows of frames with the names of their columns' types as metadata, for those that
    have one; ignores a name that the frames themselves hold."""
    return with_frame_types(frames, names_of({f.name: f.type for f in frames.schema}))


def names_of(types: Mapping[str, ArrowType]) -> dict[str, str]:
    """Returns :func:`name_of`, by column, for those columns whose type has a name."""
    names = {column: name_of(arrow) for column, arrow in types.items()}
    return {column: name for column, name in names.items() if name is not None}


def restored(column: Array, name: str) -> Array | None:
    """Casts a column of a part to the type ``name``. None if that would change a value, or if the
    column has another kind."""
    wanted = _type_named(name)
    if column.type != arrow_type(data_type(wanted)):
        return None
    try:
        found = pc.cast(column, wanted)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(wanted):  # Arrow rounds these without a word
        same = pc.or_(pc.equal(pc.cast(found, column.type), column), pc.is_nan(column))
        if not pc.all(same, min_count=0).as_py():
            return None
    return found


def restored_rows(rows: Table) -> Table:
    """Returns ``rows`` with the columns that have a frame type cast back to it, if that changes
    nothing."""
    for name, wanted in frame_types_of(rows.schema).items():
        index = rows.schema.get_field_index(name)
        column = restored(rows.column(index), wanted)
        if column is not None:
            rows = rows.set_column(index, rows.field(index).with_type(column.type), column)
    return rows


def _type_named(name: str) -> ArrowType:
    found = _PARAMETERS.fullmatch(name)
    if found is None:
        return pa.type_for_alias(name)
    unit, zone, size = found.groups()
    return pa.timestamp(unit, tz=zone) if size is None else pa.binary(int(size))

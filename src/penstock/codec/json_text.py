"""Writes typed columns as columns of JSON texts, exactly: ``codec.values`` reads back equal values.

How a value is written:

* boolean, integer: as JSON has them. number: the shortest text that reads as the same double; NaN
  and infinities are null (:func:`without_json` counts them).
* decimal: all its digits, never with an exponent; a number, or in quotes (``quoted``).
* date: "2024-02-29". timestamp: RFC 3339 in UTC, "2024-02-29T12:00:00Z"; timestamp_ntz: the same
  without the Z. Microseconds are written, all six digits, where they are not zero.
* string, number_text, time, time_tz: their text. binary: base64 with padding, in the standard
  alphabet.
* json: the text itself; a line break in it, which can only be white space, becomes a space.
* array, struct: arrays and objects by original names, every property present.

Only ``"``, ``\\`` and U+0000 to U+001F are escaped. Neighbours: ``codec.json_lines_encoder`` and
Rapidbyte's ``write.frame_encoder`` call it.
"""

import json
from typing import Any, Literal

from penstock.codec.duckdb_call import input_errors, run_query
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Kind

Text = str | Array
"""The same text for each row, or a column of texts in which NULL stands for ``null``."""

Buffer = Any  # pyarrow.Buffer

JsonType = Literal["string", "number", "integer", "boolean"]

WrittenAs = JsonType | Literal["exact", "date-time"]
"""The form in which a column is written, if not its own: a JSON type; ``exact``: integers beyond
2^53 as text, since readers with doubles would round them, others as numbers; ``date-time``: a date
as its midnight in UTC."""

EXACT = 2**53
"""Doubles hold every integer up to this one."""

_JSON = DataType(Kind.json)
_BARE = (Kind.boolean, Kind.integer, Kind.number, Kind.decimal)  # written without quotes
_FORMS: dict[str, str] = {
    "number": r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$",
    "integer": r"^-?(?:0|[1-9][0-9]*)$",
    "boolean": "^(?:true|false)$",
}
_MAX_BYTES = (1 << 31) - 2  # of a string column
# Backslashes must be escaped first: the other escapes contain some.
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES = [("\\", "\\\\"), ('"', '\\"')] + [
    (c, _SHORT.get(c, f"\\u{ord(c):04X}")) for c in map(chr, range(0x20))
]
_INSTANT_WIDTH = len("2024-02-29 12:00:00")


def pieces(
    column: Array, data_type: DataType, *, quoted: bool = False, zoned: bool = False
) -> list[Text]:
    """Returns the column's JSON texts as parts for :func:`join_texts`; not joined here, so that a
    column without NULL is not copied. ``quoted``: decimals are strings. ``zoned``: a time without a
    zone is written as one in UTC, also inside objects and lists."""
    match data_type.kind:
        case Kind.struct:
            return _struct(column, data_type, quoted, zoned)
        case Kind.array:
            return _array(column, data_type, quoted, zoned)
        case Kind.boolean | Kind.integer:
            return [pc.cast(column, pa.string())]
        case Kind.number:
            finite = pc.is_finite(column)
            if pc.all(finite).as_py() is False:
                column = pc.if_else(finite, column, pa.scalar(None, pa.float64()))
            return [pc.cast(column, pa.string())]
        case Kind.decimal:
            text = _decimal(column)
            return _around('"', text, '"') if quoted else [text]
        case Kind.date:
            return _around('"', pc.cast(column, pa.string()), '"')
        case Kind.timestamp:
            return _around('"', _time(column), 'Z"')
        case Kind.timestamp_ntz:
            return _around('"', _time(column), 'Z"' if zoned else '"')
        case Kind.binary:
            return _around('"', _by_duckdb("to_base64(b)", column), '"')
        case Kind.json:
            return [_one_line(column)]
        case Kind.string | Kind.number_text | Kind.time | Kind.time_tz:
            return _around('"', _escaped(column), '"')


def pieces_as(
    column: Array, data_type: DataType, target: WrittenAs, *, zoned: bool = False
) -> list[Text]:
    """Like :func:`pieces`, but writes a value as ``target`` if that loses nothing: the text of a
    number or truth value as that, any scalar as text. Other values are written in their own type.
    Each value is handled by itself: equal values have equal texts."""
    own, kind = pieces(column, data_type, zoned=zoned), data_type.kind
    match target:
        case "string":
            return _around('"', own[0], '"') if kind in _BARE else own
        case "exact":
            return _exact(column, own) if kind is Kind.integer else own
        case "date-time":
            if kind is not Kind.date:
                return own
            return _around('"', pc.cast(column, pa.string()), 'T00:00:00Z"')
        case "number" | "integer" | "boolean":
            if kind is not Kind.string:
                return own
            fits = pc.fill_null(texts_fit(column, target), False)
            return [pc.if_else(fits, column, join_texts(own, len(column)))]


def inexact(column: Array) -> int:
    """Returns how many integers of a column a double does not hold, judged by their size."""
    return 0 if _all_exact(column) else pc.sum(_beyond(column)).as_py()


def without_json(column: Array, data_type: DataType) -> int:
    """Returns how many doubles of a column, at any depth, are NaN or infinite, which JSON does not
    have."""
    if data_type.kind is Kind.number:
        finite = pc.is_finite(column)
        return pc.sum(pc.invert(finite)).as_py() or 0 if pc.all(finite).as_py() is False else 0
    if data_type.kind is Kind.array and data_type.item is not None:
        return without_json(column.flatten(), data_type.item)
    children = column.flatten() if data_type.kind is Kind.struct else ()
    return sum(without_json(c, f.type) for c, f in zip(children, data_type.fields, strict=True))


def texts_fit(column: Array, target: JsonType) -> Array:
    """Returns whether each text of a column is a JSON number, integer or truth value; NULL for
    NULL."""
    return pc.match_substring_regex(column, _FORMS[target])


def join_texts(parts: list[Text], rows: int) -> Array:
    """Joins ``parts`` into one column of ``rows`` texts, none NULL: a NULL becomes ``null``."""
    merged: list[Text] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if all(isinstance(p, str) for p in merged):
        return pa.repeat(pa.scalar("".join(merged), pa.string()), rows)
    return pc.binary_join_element_wise(
        *merged, "", null_handling="replace", null_replacement="null"
    )


def data_of(texts: Array) -> Buffer:
    """Returns the bytes of all values of a string column, end to end."""
    _, ends, data = texts.buffers()
    if data is None or len(texts) == 0:
        return pa.py_buffer(b"")
    bounds = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, ends], offset=texts.offset)
    start, end = bounds[0].as_py(), bounds[-1].as_py()
    return data.slice(start, end - start)


def name(source: str) -> str:
    """Returns a property's name as a JSON string. Half a surrogate pair, which UTF-8 does not have,
    is written as an escape."""
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(source)
    return json.dumps(source, ensure_ascii=False)


def _exact(column: Array, own: list[Text]) -> list[Text]:
    if _all_exact(column):
        return own
    quoted = pc.binary_join_element_wise('"', own[0], '"', "")
    return [pc.if_else(_beyond(column), quoted, own[0])]


def _all_exact(column: Array) -> bool:
    ends = pc.min_max(column).as_py()
    return ends["min"] is None or (ends["min"] >= -EXACT and ends["max"] <= EXACT)


def _beyond(column: Array) -> Array:
    return pc.or_(pc.less(column, -EXACT), pc.greater(column, EXACT))


def _around(before: str, column: Array, after: str) -> list[Text]:
    if column.null_count == 0:
        return [before, column, after]
    return [pc.binary_join_element_wise(before, column, after, "")]


def _struct(column: Array, data_type: DataType, quoted: bool, zoned: bool) -> list[Text]:
    parts: list[Text] = []
    children = column.flatten()
    for child, field in zip(children, data_type.fields, strict=True):
        parts.append(("," if parts else "{") + name(field.source) + ":")
        parts += pieces(child, field.type, quoted=quoted, zoned=zoned)
    parts.append("}" if parts else "{}")
    if column.null_count == 0:
        return parts
    return [_where_valid(column, join_texts(parts, len(column)))]


def _array(column: Array, data_type: DataType, quoted: bool, zoned: bool) -> list[Text]:
    values = column.flatten()
    if len(values) == 0 and column.null_count == 0:
        return ["[]"]
    inner = pieces(values, data_type.item or _JSON, quoted=quoted, zoned=zoned)
    items = join_texts(inner, len(values))
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    zero = pa.array([0], pa.int32())
    ends = pa.concat_arrays([zero, pc.cumulative_sum(lengths).cast(pa.int32())])
    texts = pc.binary_join(pa.ListArray.from_arrays(ends, items), ",")
    if column.null_count == 0:
        return ["[", texts, "]"]
    return [_where_valid(column, pc.binary_join_element_wise("[", texts, "]", ""))]


def _where_valid(column: Array, texts: Array) -> Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _decimal(column: Array) -> Array:
    texts = pc.cast(column, pa.string())
    if b"E" in memoryview(data_of(texts)).tobytes():  # Arrow's form of very small decimals
        texts = _by_duckdb("b::VARCHAR", column)
        texts = pc.replace_substring_regex(texts, r"^(-?)\.", r"\10.")  # DECIMAL(p,p) lacks the 0
    return texts


def _time(column: Array) -> Array:
    """Timestamps as ``2024-02-29T12:00:00``, with six more digits where microseconds are not
    zero."""
    wall = pc.cast(column, pa.timestamp("us"))
    seconds = pc.floor_temporal(wall, unit="second")
    whole = pc.equal(wall, seconds)
    if pc.all(whole).as_py() is not False:
        return _with_t(seconds.cast(pa.timestamp("s")), _INSTANT_WIDTH)
    micros = _with_t(wall, _INSTANT_WIDTH + 7)
    if pc.any(whole).as_py() is not True:
        return micros
    return pc.if_else(whole, _with_t(seconds.cast(pa.timestamp("s")), _INSTANT_WIDTH), micros)


def _with_t(column: Array, width: int) -> Array:
    """Arrow's texts of timestamps with T in place of the space. All must be ``width`` bytes
    long."""
    rows = len(column)
    filled = pc.fill_null(column, pa.scalar(0, pa.int64()).cast(column.type))
    texts = bytearray(data_of(pc.cast(filled, pa.string())))
    texts[10::width] = b"T" * rows
    ends = pc.cumulative_sum(pa.repeat(pa.scalar(width, pa.int32()), rows))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    written = pa.StringArray.from_buffers(rows, ends.buffers()[1], pa.py_buffer(texts))
    return _where_valid(column, written) if column.null_count else written


def _one_line(column: Array) -> Array:
    data = memoryview(data_of(column)).tobytes()
    if b"\n" not in data and b"\r" not in data:
        return column
    return pc.replace_substring(pc.replace_substring(column, "\n", " "), "\r", " ")


def _escaped(column: Array) -> Array:
    data = data_of(column)
    if len(data) == 0:
        return column
    codes = pa.Array.from_buffers(pa.uint8(), len(data), [None, data])
    control = pc.min_max(codes)["min"].as_py() < 0x20
    text = data.to_pybytes()
    if not control and b'"' not in text and b"\\" not in text:
        return column
    size = len(text)
    for char, escape in _ESCAPES if control else _ESCAPES[:2]:
        found = text.count(char.encode())
        size += found * (len(escape) - 1)
        # Arrow would not notice that offsets overflow here.
        if size > _MAX_BYTES:
            raise pa.ArrowCapacityError(f"{size} bytes of text in one column")
        if found:
            column = pc.replace_substring(column, char, escape)
    return column


def _by_duckdb(expression: str, column: Array) -> Array:
    """Returns the texts of a SQL expression over the column ``b``, by DuckDB; NULL for NULL."""
    try:
        result = run_query(f"SELECT ({expression})::VARCHAR AS b FROM bodies", column).column(0)
    except input_errors() as e:  # more text than 32-bit offsets can address
        raise pa.ArrowCapacityError(str(e)) from None
    return result.combine_chunks().cast(pa.string())

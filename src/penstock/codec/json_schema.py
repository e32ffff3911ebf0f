"""Reads a stream's JSON Schema (draft-07 and the dialects in use) as the types of ``model.types``.

Handles the keywords of JSON Schema; annotations of a protocol are handled by the hook that its
package passes. A schema without a single column type (unions, objects whose keys are data,
recursion) becomes JSON text, so that no schema is ever refused. Not here: values. Neighbours:
``protocols/*/schema.py`` are :class:`SchemaDialect`; ``model.names`` cleans names; ``codec.decode``
decodes values by the result."""

from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from penstock.codec.schema_walk import referred
from penstock.model.names import clean_columns
from penstock.model.types import DataType, Field, Kind, RowSchema

Hook = Callable[[Mapping[str, Any]], DataType | None]
"""Maps a schema object to its type where an annotation decides it, else to None. Called before the
generic rules, at every level, and for each branch of a union."""

MAX_DEPTH = 32  # levels of nesting and of $ref; deeper is JSON text
MAX_NODES = 20_000  # schemas read for one record: references can fan out exponentially
_MAX_DIGITS = 38
_LEFT_SCALE = 18  # of a decimal that would need more digits: Spark's own choice for such columns
_INT64 = 1 << 63

_JSON = DataType(Kind.json)
_SHAPES = {"type", "properties", "items", "enum", "const", "$ref", "oneOf", "anyOf", "allOf"}
_TEXT = {Kind.string, Kind.date, Kind.timestamp, Kind.timestamp_ntz, Kind.time, Kind.time_tz}
_FORMATS = {
    "date": Kind.date,
    "date-time": Kind.timestamp,
    "datetime": Kind.timestamp,
    "time": Kind.time_tz,
}


def data_type(schema: Any, hook: Hook | None = None) -> DataType:
    """Returns the type of the values that ``schema`` describes; never raises: what cannot be read
    is JSON text.

    Nullability is dropped: ``["null", X]`` and ``oneOf: [X, null]`` are X. An object with known
    properties is a struct of all of them in their order, also where its schema allows others
    (``additionalProperties: true``); one whose other properties have a type of their own
    (``additionalProperties: {...}``, ``patternProperties``) is JSON text, unless it is the record.
    A decimal has at most 38 digits: see :meth:`SchemaDialect.narrowed`."""
    return _Reader(schema, hook).read(schema, 0) or _JSON


class SchemaDialect:
    """A dialect of JSON Schema: plain JSON Schema with a hook for its annotations (``SchemaRole``
    of ``protocols.contract``). ``hook``: may give decimals of any precision."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook

    def data_type(self, schema: Any) -> DataType:
        """Like the function :func:`data_type`."""
        return data_type(schema, self._hook)

    def narrowed(self, schema: Any) -> tuple[str, ...]:
        """Returns the properties of a record whose schema allows numbers with more digits than a
        decimal has. Keeps the digits before the point that the bounds require, as long as 18 digits
        after the point, or those that the schema has, are left."""
        reader = _Reader(schema, self._hook)
        row = reader.read(schema, 0) or _JSON
        return tuple(
            f.source for f in row.fields if f.source in reader.narrowed and holds_decimal(f.type)
        )


def row_schema(
    row: DataType, columns: Mapping[str, str], selected: Collection[str] | None = None
) -> RowSchema:
    """Returns the columns of a stream whose records have the type ``row``. ``columns``: the stored
    names, original -> cleaned; other properties are cleaned here. ``selected``: top-level
    properties to keep (None: all). A ``row`` that is not a struct has no columns."""
    fields = [f for f in row.fields if selected is None or f.source in selected]
    names = clean_columns((f.source for f in fields), columns)
    return RowSchema(tuple(Field(names[f.source], f.source, f.type) for f in fields))


def holds_decimal(of: DataType) -> bool:
    """Returns whether a type is a decimal, or has one inside."""
    if of.item is not None:
        return holds_decimal(of.item)
    return of.kind is Kind.decimal or any(holds_decimal(f.type) for f in of.fields)


class _Reader:
    def __init__(self, root: Any, hook: Hook | None) -> None:
        self._root = root
        self._hook = hook
        self._open = {"#"}  # the $refs that are being read: one met again is recursive
        self._budget = MAX_NODES
        self._inside = 0  # objects and arrays around what is read
        self._column = ""  # the record's property that is read
        self.narrowed: set[str] = set()  # such properties with a decimal that needs more digits

    def read(self, schema: Any, depth: int) -> DataType | None:
        """Returns the type of ``schema``; None if only null is valid."""
        found = self._asked(schema, depth)
        if found is None or found.kind is not Kind.decimal or (found.precision or 0) <= _MAX_DIGITS:
            return found
        self.narrowed.add(self._column)
        scale = found.scale or 0
        whole = (found.precision or 0) - scale
        kept = max(_MAX_DIGITS - whole, min(scale, _LEFT_SCALE))
        return DataType(Kind.decimal, precision=_MAX_DIGITS, scale=kept)

    def _asked(self, schema: Any, depth: int) -> DataType | None:
        self._budget -= 1
        if depth > MAX_DEPTH or self._budget < 0 or not isinstance(schema, dict):
            return _JSON
        given = cast(dict[str, Any], schema)
        if self._hook is not None and (found := self._hook(given)) is not None:
            return found
        if isinstance(ref := given.get("$ref"), str):
            return self._follow(ref, depth)
        for word in ("oneOf", "anyOf"):
            if isinstance(given.get(word), list) and given[word]:
                return self._union(given, given[word], depth)
        if isinstance(given.get("allOf"), list) and given["allOf"]:
            return self._all_of(given, depth)
        return self._by_type(given, depth)

    def _follow(self, ref: str, depth: int) -> DataType | None:
        if ref in self._open:
            return _JSON
        self._open.add(ref)
        try:
            return self.read(referred(self._root, ref), depth + 1)
        finally:
            self._open.discard(ref)

    def _union(self, given: dict[str, Any], branches: list[Any], depth: int) -> DataType | None:
        """Returns the type that all ``branches`` of oneOf or anyOf share. A branch without type
        keywords (``{"required": [...]}``) only narrows the schema next to it, and is read with
        it."""
        beside = {k: v for k, v in given.items() if k not in ("oneOf", "anyOf")}
        found: list[DataType] = []
        for branch in branches:
            if isinstance(branch, dict) and not _SHAPES & branch.keys():
                branch = beside | cast(dict[str, Any], branch)
            one = self.read(branch, depth + 1)
            if one is not None and one not in found:
                found.append(one)
        return _one(found)

    def _all_of(self, given: dict[str, Any], depth: int) -> DataType | None:
        merged: dict[str, Any] = {k: v for k, v in given.items() if k != "allOf"}
        for part in given["allOf"]:
            if not isinstance(part, dict):
                return _JSON
            branch = cast(dict[str, Any], part)
            if "$ref" in branch:
                if len(given["allOf"]) > 1 or "properties" in merged or "type" in merged:
                    return _JSON
                return self.read(branch, depth + 1)
            both = {**merged.get("properties", {}), **branch.get("properties", {})}
            merged = merged | branch | ({"properties": both} if both else {})
        return self.read(merged, depth + 1)

    def _by_type(self, given: dict[str, Any], depth: int) -> DataType | None:
        names = _type_names(given)
        if names is None:
            return _JSON
        nullless = [n for n in names if n != "null"]
        if not nullless:
            return None
        return _one([self._named(name, given, depth) for name in dict.fromkeys(nullless)])

    def _named(self, name: str, given: dict[str, Any], depth: int) -> DataType:
        match name:
            case "string":
                return _string(given)
            case "integer":
                return _integer(given)
            case "number":
                return _number(given)
            case "boolean":
                return DataType(Kind.boolean)
            case "array":
                return self._array(given, depth)
            case "object":
                return self._object(given, depth)
            case _:
                return _JSON

    def _array(self, given: dict[str, Any], depth: int) -> DataType:
        """Returns the type of an array. ``items`` as a list of schemas means any of them, and so
        JSON text unless they agree."""
        items = given.get("items")
        branches: list[Any] = cast(list[Any], items) if isinstance(items, list) else [items]
        self._inside += 1
        found = [self.read(i, depth + 1) for i in branches]
        self._inside -= 1
        item = _one([k for k in dict.fromkeys(found) if k is not None])
        return DataType(Kind.array, item=item or _JSON)

    def _object(self, given: dict[str, Any], depth: int) -> DataType:
        properties = given.get("properties")
        if not isinstance(properties, dict) or not properties:
            return _JSON
        known = cast(dict[str, Any], properties)
        if self._inside and (_has_typed_rest(given) or not _addressable(known)):
            return _JSON
        names, fields = clean_columns(known), list[Field]()
        for source, schema in known.items():
            if not self._inside:
                self._column = source
            self._inside += 1
            fields.append(Field(names[source], source, self.read(schema, depth + 1) or _JSON))
            self._inside -= 1
        return DataType(Kind.struct, fields=tuple(fields))


def _one(found: list[DataType]) -> DataType | None:
    """Returns the type that holds the values of all types in ``found`` unchanged; None for no
    types."""
    if not found:
        return None
    kinds = {f.kind for f in found}
    if len(found) == 1:
        return found[0]
    if kinds <= _TEXT:
        return DataType(Kind.string)
    return DataType(Kind.number) if kinds == {Kind.integer, Kind.number} else _JSON


def _has_typed_rest(given: dict[str, Any]) -> bool:
    """Returns whether an object's schema describes properties without naming them: their names are
    data, as in a map."""
    words = ("additionalProperties", "patternProperties")
    return any(isinstance(given.get(word), dict) and given[word] for word in words)


def _addressable(names: Iterable[str]) -> bool:
    """Returns whether the decoder can distinguish a nested object's properties: it ignores case in
    names, and cannot find empty names or U+0000."""
    folded = [n.casefold() for n in names]
    return len(set(folded)) == len(folded) and all(n and "\0" not in n for n in folded)


def _type_names(given: dict[str, Any]) -> list[str] | None:
    """Returns the names in ``type``, or those that other keywords imply; None if none is known."""
    named = given.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list) and named:
        return [n for n in cast(list[Any], named) if isinstance(n, str)] or None
    if "const" in given:
        return [_value_type(given["const"])]
    if isinstance(given.get("enum"), list) and given["enum"]:
        return list(dict.fromkeys(_value_type(v) for v in given["enum"]))
    if isinstance(given.get("properties"), dict):
        return ["object"]
    if "items" in given:
        return ["array"]
    if given.get("format") in _FORMATS or "contentEncoding" in given:
        return ["string"]
    return None


def _value_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _string(given: dict[str, Any]) -> DataType:
    if str(given.get("contentEncoding", "")).lower() == "base64":
        return DataType(Kind.binary)
    return DataType(_FORMATS.get(str(given.get("format")), Kind.string))


def _integer(given: dict[str, Any]) -> DataType:
    low, high = (
        _bound(given, "minimum", "exclusiveMinimum"),
        _bound(given, "maximum", "exclusiveMaximum"),
    )
    beyond = (low is not None and low < -_INT64) or (high is not None and high >= _INT64)
    if not beyond:
        return DataType(Kind.integer)
    whole = max(_whole_digits(b) for b in (low, high) if b is not None)
    return DataType(Kind.decimal, precision=max(_MAX_DIGITS, whole), scale=0)


def _number(given: dict[str, Any]) -> DataType:
    """Returns the type of a number, which may need more than 38 digits. With ``multipleOf`` it is a
    decimal with that many places (an integer for none); its precision follows from the bounds if
    both are given, else it has 38 digits, or 38 before the point if more than 18 follow it. Without
    ``multipleOf`` it is a double."""
    step = _decimal(given.get("multipleOf"))
    if step is None or step <= 0:
        return DataType(Kind.number)
    exponent = step.normalize().as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    low, high = (
        _bound(given, "minimum", "exclusiveMinimum"),
        _bound(given, "maximum", "exclusiveMaximum"),
    )
    if low is None or high is None:
        if scale == 0:
            return DataType(Kind.integer)
        most = _MAX_DIGITS if scale <= _LEFT_SCALE else _MAX_DIGITS + scale
        return DataType(Kind.decimal, precision=most, scale=scale)
    largest = max(abs(low), abs(high))
    if scale == 0 and largest < _INT64:
        return DataType(Kind.integer)
    whole = max(0, largest.adjusted() + 1) if largest else 0
    if whole + scale > _MAX_DIGITS:
        whole = _whole_digits(largest)
    return DataType(Kind.decimal, precision=max(1, whole + scale), scale=scale)


def _whole_digits(bound: Decimal) -> int:
    """Returns the digits before the point in numbers up to ``bound``: 28 for 10^28, which taps give
    as the bound of numbers with 28, and which itself needs one more."""
    power = abs(bound).normalize().as_tuple().digits == (1,)
    return max(0, bound.adjusted() + (0 if power else 1))


def _bound(given: dict[str, Any], inclusive: str, exclusive: str) -> Decimal | None:
    """Returns the bound under either keyword; None if there is none. Ignores a boolean
    ``exclusiveMaximum`` (draft-04): the inclusive bound counts."""
    for word in (inclusive, exclusive):
        if (value := _decimal(given.get(word))) is not None:
            return value
    return None


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None

"""Checks rows against a stream's row type (JSON Schema, draft-07), and decides how rows are written
for it.

Where the columns' types prove that every row fits, no row is checked; else each is validated. A
column whose JSON type its property does not accept is written as one that it accepts (``casts``),
where nothing is lost. So is an integer that a reader with doubles would round, where the property
accepts text too. As the real host does, properties that the row type does not name are allowed at
the top. Not here: encoding (``outgoing``). Source: reference §1.3, §3.4.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import jsonschema_rs

from penstock.codec.json_text import EXACT, JsonType, WrittenAs, inexact, texts_fit
from penstock.codec.schema_walk import parts
from penstock.codec.untyped import compute as pc
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.json_schema.validation_steps import why_not_validated

_ANNOTATIONS = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples"}
)
_ROOT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_JSON_TYPES = {
    Kind.boolean: {"boolean"},
    Kind.integer: {"integer", "number"},
    Kind.number: {"number"},
    Kind.array: {"array"},
    Kind.struct: {"object"},
}
_TEXT = {"string"}
_CASTS: dict[Kind, tuple[JsonType, ...]] = {
    Kind.string: ("number", "integer", "boolean"),
    Kind.boolean: ("string",),
    Kind.integer: ("string",),
    Kind.number: ("string",),
}
_BEYOND = EXACT + 1
_DAY, _MIDNIGHT = "2024-02-29", "2024-02-29T00:00:00Z"
INEXACT, REMOVALS = "integers_beyond_2^53_sent_as_numbers", "removals_sent_as_rows"
_SHOWN = 300  # characters of a reason


def row_type_fault(row_type: dict[str, Any]) -> str | None:
    """Returns why rows cannot be checked against it, as the end of a sentence; None: they can."""
    given = row_type.get("properties")
    row = dict.fromkeys(cast(dict[str, Any], given)) if isinstance(given, dict) else {}
    if (reason := why_not_validated(row_type, row)) is not None:
        return reason
    try:
        _validator(row_type)
    except (jsonschema_rs.ValidationError, ValueError) as e:
        return "is not a valid JSON Schema: " + str(e).partition("\n")[0]
    return None


def names(row_type: dict[str, Any] | None, field: str) -> bool:
    """Returns whether a row type names a property, in any of its branches."""
    found = (part.get("properties") for part in parts(row_type, [row_type]))
    return any(field in cast(dict[str, Any], p) for p in found if isinstance(p, dict))


class RowCheck:
    """``omitted``: columns (original names) whose NULLs are left out. ``as_numbers``: decimals that
    are written as JSON numbers; the others are texts. ``casts``: columns written in a form other
    than their own. ``nulls``: auto, send or omit. ``unknown``: a column that the destination does
    not know, so its NULLs are omitted too, unless ``nulls`` is send.

    Raises ``ValueError`` for a row type that is not a JSON Schema (:func:`row_type_fault`)."""

    def __init__(
        self,
        row_type: dict[str, Any] | None,
        schema: RowSchema,
        nulls: str,
        unknown: str | None = None,
    ) -> None:
        self._type = row_type or {}
        self._schema = schema
        self._valid = _validator(self._type)
        self._required = _strings(self._type.get("required"))
        takes_null = {f.source: self._takes({f.source: None}) for f in schema.fields}
        self.omitted = frozenset(
            name
            for name, takes in takes_null.items()
            if nulls == "omit" or not takes or name == unknown
        ) if nulls != "send" else frozenset[str]()  # fmt: skip
        self.as_numbers = frozenset(
            f.source
            for f in schema.fields
            if f.type.kind is Kind.decimal and not self._takes({f.source: "1"})
        )
        others: dict[str, JsonType] = {
            f.source: target for f in schema.fields if (target := self._cast(f)) is not None
        }
        self.casts: dict[str, WrittenAs] = {
            f.source: form
            for f in schema.fields
            if (form := others.get(f.source) or self._safer(f)) is not None
        }
        self._from_text: list[tuple[str, JsonType]] = [
            (f.name, target)
            for f in schema.fields
            if f.type.kind is Kind.string and (target := others.get(f.source)) is not None
        ]
        self._as_doubles = [
            f.name
            for f in schema.fields
            if f.type.kind is Kind.integer and f.source not in self.casts
        ]
        self._never_null = [
            f.name
            for f in schema.fields
            if (f.source in self.omitted and f.source in self._required)
            or (f.source not in self.omitted and not takes_null[f.source])
        ]
        self._mark = next((f.name for f in schema.fields if f.source == unknown), None)
        self._numbers = [f.name for f in schema.fields if f.type.kind is Kind.number]
        self._typed = self._types_fit()

    def proves(self, batch: Any) -> bool:
        """Returns whether every row of a record batch (pyarrow) fits, by its columns alone."""
        return (
            self._typed
            and all(batch.column(name).null_count == 0 for name in self._never_null)
            and all(
                pc.all(texts_fit(batch.column(name), target)).as_py() is not False
                for name, target in self._from_text
            )
            and all(_finite(batch.column(name)) for name in self._numbers)
        )

    def doubtful(self, batch: Any) -> Counter[str]:
        """Counts what a destination may misinterpret in a record batch: integers written as JSON
        numbers that a double does not hold, and removed rows whose mark it does not know."""
        found = Counter[str]()
        found[INEXACT] = sum(inexact(batch.column(name)) for name in self._as_doubles)
        if self._mark is not None:
            found[REMOVALS] = batch.num_rows - batch.column(self._mark).null_count
        return found

    def fits(self, row: dict[str, Any]) -> bool:
        return self._valid.is_valid(row)

    def reason(self, row: dict[str, Any]) -> tuple[str, str | None]:
        """Returns why a row does not fit, and the property at fault."""
        error = next(iter(self._valid.iter_errors(row)))
        path = [str(p) for p in error.instance_path]
        where = ".".join(path) or "the row"
        return f"row type: {where}: {error.message}"[:_SHOWN], path[0] if path else None

    def _takes(self, row: dict[str, Any]) -> bool:
        """Returns whether these properties fit, ignoring missing required ones."""
        return all(e.kind.name == "required" for e in self._valid.iter_errors(row))

    def _types_fit(self) -> bool:
        if self._type.keys() - _ROOT or self._type.get("type", "object") != "object":
            return False
        known = self._type.get("properties", {})
        if not isinstance(known, dict) or self._required - {f.source for f in self._schema.fields}:
            return False
        properties = cast(dict[str, Any], known)
        return all(self._fits(f, properties.get(f.source, True)) for f in self._schema.fields)

    def _fits(self, field: Field, schema: Any) -> bool:
        if schema is True or schema == {}:
            return True
        if not isinstance(schema, dict):
            return False
        given = cast(dict[str, Any], schema)
        if given.keys() - _ANNOTATIONS - {"type"}:
            return False
        return "type" not in given or not self._types(field).isdisjoint(_strings(given["type"]))

    def _cast(self, field: Field) -> JsonType | None:
        """Returns the JSON type to write the field's values as, where its property accepts none of
        their own; None: they are written unchanged."""
        properties = self._type.get("properties")
        if not isinstance(properties, dict):
            return None
        schema = cast(dict[str, Any], properties).get(field.source)
        types = cast(dict[str, Any], schema).get("type") if isinstance(schema, dict) else None
        takes = _strings(types)
        if not takes or field.type.kind not in _CASTS or not self._own(field).isdisjoint(takes):
            return None
        return next((target for target in _CASTS[field.type.kind] if target in takes), None)

    def _safer(self, field: Field) -> WrittenAs | None:
        """Returns another form of a field's values with the same meaning, where their own is
        misread (an integer that a double does not hold) or refused (a date where a time is
        required)."""
        name = field.source
        if field.type.kind is Kind.integer and self._takes({name: str(_BEYOND)}):
            return "exact"
        if field.type.kind is Kind.date and not self._takes({name: _DAY}):
            return "date-time" if self._takes({name: _MIDNIGHT}) else None
        return None

    def _types(self, field: Field) -> set[str]:
        """Returns the JSON types that the field's values are written as; if its property accepts
        one, it accepts all: an integer's second form, text, was tested before (``_safer``)."""
        match self.casts.get(field.source):
            case None | "exact" | "date-time":
                return self._own(field)
            case target:
                return {target}

    def _own(self, field: Field) -> set[str]:
        if field.type.kind is Kind.decimal:
            return {"number"} if field.source in self.as_numbers else {"string"}
        return _json_types(field.type)


def _finite(column: Any) -> bool:
    """Returns whether JSON can hold all its doubles: NaN and infinity are written as null."""
    return pc.all(pc.is_finite(column)).as_py() is not False


def _json_types(data_type: DataType) -> set[str]:
    return set[str]() if data_type.kind is Kind.json else _JSON_TYPES.get(data_type.kind, _TEXT)


def _strings(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    return {str(v) for v in cast(list[Any], value)} if isinstance(value, list) else set()


def _validator(row_type: dict[str, Any]) -> Any:
    opened = {**row_type, "additionalProperties": True}
    return jsonschema_rs.Draft7Validator(opened, validate_formats=True, retriever=_no_remote)


def _no_remote(uri: str) -> NoReturn:
    raise ValueError(f"schemas are not fetched: {uri}")


def key_of(row: dict[str, Any], paths: Iterator[tuple[str, ...]]) -> str:
    """Returns the row's primary key, for a reason: ``id=5``; empty where it has none."""
    found: list[str] = []
    for path in paths:
        value: Any = row
        for step in path:
            value = cast(dict[str, Any], value).get(step) if isinstance(value, dict) else None
        found.append(f"{'.'.join(path)}={value}")
    return ", ".join(found)

"""What a table's columns become when a load's differ: pure, the same for every format.

A table's types only widen, and only where every old value keeps its meaning; a value that does not
fit the column it goes to becomes NULL with an entry in the row's changes (L9). Not here: casting
(``load_frame``), rewriting (the formats).
"""

import msgspec

from penstock.errors import SchemaError
from penstock.model.types import DataType, Field, Kind
from penstock.tables.contract import (
    NewColumn,
    RemovedColumn,
    SchemaEvolution,
    TypeChange,
)

_INT64_DIGITS = 19
_MAX_DIGITS = 38


class Columns(msgspec.Struct, frozen=True):
    """``fields``: the table's columns after the load. ``added``: a column or a nested field is new;
    ``widened``: a type is wider than before. Either means that old rows are not as the table's
    columns say until they are rewritten (or until the format fills them in by itself)."""

    fields: tuple[Field, ...]
    added: bool = False
    widened: bool = False


def evolve(
    table: str,
    old: tuple[Field, ...] | None,
    new: tuple[Field, ...],
    policy: SchemaEvolution,
    *,
    replaces: bool = False,
    own: frozenset[str] = frozenset(),
    to_double: bool = True,
) -> Columns:
    """The columns of ``table`` after a load whose rows have ``new``.

    ``old`` None: the table is not there. ``replaces``: no old row stays, so types and columns
    follow the load. ``own``: names of metadata columns, to which no policy applies. ``to_double``:
    False where an old number would lose digits as a double. Types are those a table knows
    (``spark.types.stored``). Raises ``SchemaError``: ``schema.new_column``,
    ``schema.removed_column``, ``schema.type_change``.
    """
    if old is None:
        return Columns(new)
    merge = _Merge(table, policy, own, to_double)
    merged = merge.fields(old, new, "")
    if not replaces:
        return Columns(merged, merge.added, merge.widened)
    known = {f.name for f in old}
    follows = [f for f in new if f.name in known or f.name in own or merge.adds]
    return Columns(tuple(follows))


class _Merge:
    def __init__(
        self, table: str, policy: SchemaEvolution, own: frozenset[str], to_double: bool
    ) -> None:
        self.table = table
        self.to_double = to_double
        self.policy = policy
        self.own = own
        self.adds = policy.new_column is NewColumn.add
        self.added = False
        self.widened = False

    def fields(
        self, old: tuple[Field, ...], new: tuple[Field, ...], prefix: str
    ) -> tuple[Field, ...]:
        coming = {f.name: f for f in new}
        merged: list[Field] = []
        for field in old:
            path = prefix + field.name
            other = coming.pop(field.name, None)
            if other is None:
                self._removed(path)
                merged.append(field)
            else:
                merged.append(Field(field.name, field.source, self._type(field, other, path)))
        for field in coming.values():
            if self._adds(prefix + field.name):
                self.added = True
                merged.append(field)
        return tuple(merged)

    def _removed(self, path: str) -> None:
        if self.policy.removed_column is RemovedColumn.fail and path not in self.own:
            raise self._refused("schema.removed_column", f"column {path} is no longer delivered")

    def _adds(self, path: str) -> bool:
        if path in self.own:
            return True
        if self.policy.new_column is NewColumn.fail:
            raise self._refused("schema.new_column", f"column {path} is new")
        return self.adds

    def _type(self, old: Field, new: Field, path: str) -> DataType:
        return old.type if path in self.own else self._merge(old.type, new.type, path)

    def _merge(self, old: DataType, new: DataType, path: str) -> DataType:
        if old == new:
            return old
        if old.kind is new.kind is Kind.struct:
            return DataType(Kind.struct, fields=self.fields(old.fields, new.fields, f"{path}."))
        if old.kind is new.kind is Kind.array and old.item and new.item:
            return DataType(Kind.array, item=self._merge(old.item, new.item, path))
        if self.policy.type_change is TypeChange.fail:
            reason = f"column {path} changes from {described(old)} to {described(new)}"
            raise self._refused("schema.type_change", reason)
        if self.policy.type_change is TypeChange.null:
            return old
        wider = widened(old, new)
        if wider.kind is Kind.number and not self.to_double:
            return old
        self.widened = self.widened or wider != old
        return wider

    def _refused(self, code: str, reason: str) -> SchemaError:
        policy = code.removeprefix("schema.")
        return SchemaError(
            f"table {self.table}: {reason}",
            code=code,
            where=self.table,
            hint=f"allow it with schema_evolution.{policy}, or write to a new table",
        )


def widened(old: DataType, new: DataType) -> DataType:
    """The type that holds every ``old`` value and as many ``new`` ones as possible; ``old`` itself
    where none is wider."""
    numeric = (Kind.integer, Kind.decimal)
    if old.kind in numeric and new.kind is Kind.number:
        return new
    if old.kind in numeric and new.kind in numeric:
        whole = max(_whole_digits(old), _whole_digits(new))
        scale = max(old.scale or 0, new.scale or 0)
        if old.kind is Kind.integer and new.kind is Kind.integer:
            return old
        if whole + scale > _MAX_DIGITS:
            return old
        return DataType(Kind.decimal, precision=whole + scale, scale=scale)
    if old.kind is Kind.date and new.kind is Kind.timestamp_ntz:
        return new
    return old


def _whole_digits(kind: DataType) -> int:
    if kind.kind is Kind.integer:
        return _INT64_DIGITS
    return (kind.precision or _MAX_DIGITS) - (kind.scale or 0)


def described(kind: DataType) -> str:
    if kind.kind is Kind.decimal:
        return f"decimal({kind.precision or _MAX_DIGITS},{kind.scale or 0})"
    return kind.kind.value

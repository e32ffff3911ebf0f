"""Computes a table's columns after a load with different columns; pure, the same for every format.

A column's type only widens, and only if every old value keeps its meaning. A new value that does
not fit its column becomes NULL with an entry in the row's change list (L9). Not here: casting
(``casts``, ``load_frame``), rewriting the table's files (the formats)."""

import msgspec

from penstock.errors import SchemaError
from penstock.model.types import EXTRA, DataType, Field, Kind
from penstock.tables.contract import (
    NewColumn,
    RemovedColumn,
    SchemaChangePolicies,
    TypeChange,
)
from penstock.tables.wider_types import MOST_DIGITS, widened


class EvolvedColumns(msgspec.Struct, frozen=True):
    """``fields``: the table's columns after the load. ``added``: a column or a nested field is new;
    ``widened``: a type is wider than before. After either, old files do not match ``fields`` until
    the table is rewritten, unless the format reads an absent column as NULL."""

    fields: tuple[Field, ...]
    added: bool = False
    widened: bool = False


def evolve(
    table: str,
    old: tuple[Field, ...] | None,
    new: tuple[Field, ...],
    policy: SchemaChangePolicies,
    *,
    replaces: bool = False,
    metadata: frozenset[str] = frozenset(),
    to_double: bool = True,
) -> EvolvedColumns:
    """Computes the columns of ``table`` after a load whose rows have the columns ``new``.

    ``old`` None: there is no table. ``replaces``: no old row stays, so types and columns follow the
    load. ``metadata``: names of metadata columns, to which no policy applies. ``to_double``: False
    where an old number would lose digits as a double. Types are those that a table can store
    (``spark.types.stored``). Raises ``SchemaError``: ``schema.new_column``,
    ``schema.removed_column``, ``schema.type_change``, ``schema.name_taken``.
    """
    if old is None:
        return EvolvedColumns(new)
    merge = _Merge(table, policy, metadata, to_double, replaces)
    merged = merge.fields(old, new, "")
    if not replaces:
        return EvolvedColumns(merged, merge.added, merge.widened)
    existing = {f.name for f in old}
    kept = (f for f in new if f.name in existing or f.name in metadata or merge.adds)
    return EvolvedColumns(tuple(kept))


class _Merge:
    """Merges two lists of fields under the policy, and sets ``added`` and ``widened``."""

    def __init__(
        self,
        table: str,
        policy: SchemaChangePolicies,
        metadata: frozenset[str],
        to_double: bool,
        replaces: bool,
    ) -> None:
        self.table = table
        self.replaces = replaces
        self.to_double = to_double
        self.policy = policy
        self.metadata = metadata
        self.adds = policy.new_column is NewColumn.add
        self.added = False
        self.widened = False

    def fields(
        self, old: tuple[Field, ...], new: tuple[Field, ...], prefix: str
    ) -> tuple[Field, ...]:
        unmatched = {f.name: f for f in new}
        merged: list[Field] = []
        for field in old:
            path = prefix + field.name
            other = unmatched.pop(field.name, None)
            if other is None:
                self._removed(path)
                merged.append(field)
            else:
                merged.append(Field(field.name, field.source, self._type(field, other, path)))
        for field in unmatched.values():
            if self._adds(prefix + field.name):
                self._refuse_twin(old, field.name, prefix)
                self.added = True
                merged.append(field)
        return tuple(merged)

    def _removed(self, path: str) -> None:
        always = path in self.metadata or path == EXTRA  # a run may have nothing to put there
        if self.policy.removed_column is RemovedColumn.fail and not always:
            raise self._refused("schema.removed_column", f"column {path} is no longer delivered")

    def _adds(self, path: str) -> bool:
        if path in self.metadata:
            return True
        if self.policy.new_column is NewColumn.fail:
            raise self._refused("schema.new_column", f"column {path} is new")
        return self.adds

    def _refuse_twin(self, old: tuple[Field, ...], name: str, prefix: str) -> None:
        """Refuses a new column that differs from one of the table's by case alone: Spark treats the
        two as one, and reads no table that has both."""
        twin = next((f.name for f in old if f.name.lower() == name.lower()), None)
        if twin is None or self.replaces:
            return
        raise SchemaError(
            f"table {self.table}: the field {prefix}{name} is new, and the table has {prefix}{twin}"
            ", which Spark takes for the same",
            code="schema.name_taken",
            where=self.table,
            hint="`penstock state reset` discards this load; then `penstock run --recreate` makes "
            "the table again (`types: {NAME: json}` keeps an object as text, whatever its names)",
        )

    def _type(self, old: Field, new: Field, path: str) -> DataType:
        if path == EXTRA and old.type != new.type and not self.replaces:
            raise self._foreign(old.type)
        return old.type if path in self.metadata else self._merge(old.type, new.type, path)

    def _foreign(self, type_: DataType) -> SchemaError:
        """Makes the error for a table with a column of this name that Penstock did not make."""
        return SchemaError(
            f"table {self.table}: it has a column {EXTRA} of its own, of type {described(type_)}: "
            "properties that the stream's schema does not declare have no column",
            code="schema.name_taken",
            where=self.table,
            hint="`penstock state reset` discards this load; then set `undeclared: drop` for the"
            " stream, or rename the table's column",
        )

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


def described(kind: DataType) -> str:
    """Returns the type's name in an error message."""
    if kind.kind is Kind.decimal:
        return f"decimal({kind.precision or MOST_DIGITS},{kind.scale or 0})"
    return kind.kind.value

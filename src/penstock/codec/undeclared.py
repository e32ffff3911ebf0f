"""Finds the properties that a schema lacks, in records and in the objects inside them, and counts
the records that have them.

Once met, a property is read with the schema's from then on, as JSON text, so that the keys of later
batches are accounted for at the price of one more column. It follows its object's own fields. Names
that cannot be read in this way (too many, or names that DuckDB does not distinguish inside an
object) are counted together, as ``*`` of their object.

An object is named by the path of original names that leads to it, without lists on the way.
Neighbours: ``codec.decode`` holds one :class:`UndeclaredProperties` per decoder;
``codec.undeclared_json`` makes a column of those that are kept."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.codec import bodies as shape
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.model.catalog import FieldPath
from penstock.model.types import DataType, Field, Kind

MAX_NAMES = 256  # read next to the schema; batches with names beyond these cost more
REST = "*"

KeysAt = Callable[[str], Array]
"""Returns the keys at a DuckDB path, like :func:`codec.bodies.keys`."""

_JSON = DataType(Kind.json)


class Undeclared(NamedTuple):
    """An undeclared property. ``at``: its object; ``label``: its dotted path (``user.email``,
    ``items[].qty``); ``records``: how many have it. ``name`` None: several, of which this object
    has too many."""

    at: FieldPath
    label: str
    records: int
    name: str | None


class _Object(NamedTuple):
    """An object in the records. ``at``: its path of names; ``path``: DuckDB's; ``label``: the
    dotted path for reports, with a dot at its end. ``names``: the properties that are read."""

    at: FieldPath
    path: str
    label: str
    names: frozenset[str]


class UndeclaredProperties:
    """The undeclared properties of one stream's records. ``columns``: the top-level properties, by
    the names under which they are read. ``ignored``: paths of properties that are neither counted
    nor kept.

    ``fields``: what is read: ``columns``, and after them the top-level properties that were met;
    the structs inside have those that were met after their own fields."""

    def __init__(self, columns: Sequence[Field], ignored: Collection[FieldPath]) -> None:
        self._columns = tuple(columns)
        self._met: dict[FieldPath, list[str]] = {}
        self._ignored: dict[FieldPath, set[str]] = {}
        for path in sorted(ignored):
            self._ignored.setdefault(path[:-1], set()).add(path[-1])
        self.fields = self._columns
        self._objects = list(_objects(self.fields))
        self.learn({o.at: sorted(self._ignored.get(o.at, ())) for o in self._objects})

    def strangers(self, keys_at: KeysAt) -> dict[FieldPath, list[str]]:
        """Returns the properties that are not read yet, by object."""
        found: dict[FieldPath, list[str]] = {}
        for each in self._objects:
            names, _ = _flat(keys_at(each.path))
            new = [n for n in pc.unique(names).to_pylist() if n not in each.names]
            if new:
                found[each.at] = new
        return found

    def learn(self, names: Mapping[FieldPath, Sequence[str]]) -> bool:
        """Reads these properties too from now on; for one object, either all or, if
        :data:`MAX_NAMES` would be exceeded, none. Returns whether any is new."""
        before = sum(map(len, self._met.values()))
        known = before
        for each in self._objects:
            new = _readable(names.get(each.at, ()), each)
            if new and known + len(new) <= MAX_NAMES:
                self._met.setdefault(each.at, []).extend(new)
                known += len(new)
        if known == before:
            return False
        self.fields = _with_met(self._columns, (), self._met)
        self._objects = list(_objects(self.fields))
        return True

    def counted(self, texts: Sequence[Array]) -> list[Undeclared]:
        """Counts the records in which a property that is read with the schema has a value other
        than null. ``texts``: the columns of :attr:`fields`."""
        found = self._counts(texts, self.fields, (), "", None) if self._met else ()
        return [each for each in found if each.records]

    def rest(self, keys_at: KeysAt) -> list[Undeclared]:
        """Counts the records with properties that are not read at all, as ``*`` of their object; a
        null counts too."""
        found: list[Undeclared] = []
        for each in self._objects:
            names, rows = _flat(keys_at(each.path))
            known = [*each.names, *self._ignored.get(each.at, ())]
            odd = pc.invert(pc.is_in(names, pa.array(known, pa.string())))
            if count := pc.count_distinct(rows.filter(odd)).as_py():
                found.append(Undeclared(each.at, each.label + REST, count, None))
        return found

    def counts(self, at: FieldPath, name: str) -> bool:
        """Returns whether the property ``name`` of the object ``at`` is undeclared, and not
        ignored."""
        return name in self._met.get(at, ()) and name not in self._ignored.get(at, ())

    def ignores(self, at: FieldPath, name: str) -> bool:
        return name in self._ignored.get(at, ())

    def columns(self) -> tuple[Field, ...]:
        """Returns the columns that are declared, as they are read."""
        return self._columns

    def _counts(
        self,
        texts: Sequence[Array],
        fields: Sequence[Field],
        at: FieldPath,
        label: str,
        rows: shape.Rows | None,
    ) -> Iterator[Undeclared]:
        """``rows``: the mapping of elements of a list to rows; None: element i is row i."""
        for text, field in zip(texts, fields, strict=True):
            name, path = label + field.source, (*at, field.source)
            if self.counts(at, field.source):
                valid = len(text) - text.null_count
                if rows is not None and valid:
                    positions = pc.indices_nonzero(text.is_valid()).cast(pa.int64())
                    valid = pc.count_distinct(rows(positions)).as_py()
                yield Undeclared(at, name, valid, field.source)
                continue
            inner, below, of = text, rows, field.type
            while of.kind is Kind.array and of.item is not None:
                below, of, name = shape.below(inner, below or _same), of.item, f"{name}[]"
                inner = inner.flatten()
            if of.kind is Kind.struct and any(p[: len(path)] == path for p in self._met):
                yield from self._counts(inner.flatten(), of.fields, path, f"{name}.", below)


def _same(positions: Array) -> Array:
    return positions


def _flat(keys: Array) -> tuple[Array, Array]:
    """Returns the keys of all objects, and the row of each."""
    rows = pc.list_parent_indices(keys).cast(pa.int64())
    names = keys.flatten()
    if pa.types.is_list(names.type):  # the path has [*]: a list per element
        rows, names = rows.take(pc.list_parent_indices(names)), names.flatten()
    return names, rows


def _readable(names: Sequence[str], of: _Object) -> list[str]:
    """Returns those of ``names`` that can be looked for next to the object's other read
    properties."""
    inside = bool(of.at)
    taken = {n.casefold() if inside else n for n in of.names}
    found: list[str] = []
    for name in names:
        folded = name.casefold() if inside else name
        if name and "\0" not in name and folded not in taken:
            found.append(name)
            taken.add(folded)
    return found


def _objects(fields: Sequence[Field]) -> Iterator[_Object]:
    yield _Object((), "$", "", frozenset(f.source for f in fields))
    for field in fields:
        yield from _inside(field, (), "$", "")


def _inside(field: Field, at: FieldPath, path: str, label: str) -> Iterator[_Object]:
    of, path, label = field.type, shape.step(path, field.source), label + field.source
    while of.kind is Kind.array and of.item is not None:
        of, path, label = of.item, f"{path}[*]", f"{label}[]"
    if of.kind is Kind.struct:
        here, label = (*at, field.source), f"{label}."
        yield _Object(here, path, label, frozenset(f.source for f in of.fields))
        for inner in of.fields:
            yield from _inside(inner, here, path, label)


def _with_met(
    fields: Sequence[Field], at: FieldPath, met: Mapping[FieldPath, Sequence[str]]
) -> tuple[Field, ...]:
    own = (Field(f.name, f.source, _widened(f.type, (*at, f.source), met)) for f in fields)
    return (*own, *(Field(name, name, _JSON) for name in met.get(at, ())))


def _widened(of: DataType, at: FieldPath, met: Mapping[FieldPath, Sequence[str]]) -> DataType:
    if of.kind is Kind.array and of.item is not None:
        return DataType(Kind.array, item=_widened(of.item, at, met))
    if of.kind is Kind.struct:
        return DataType(Kind.struct, fields=_with_met(of.fields, at, met))
    return of

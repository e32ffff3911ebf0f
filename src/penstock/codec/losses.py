"""Collects what the values of one batch lost in decoding, and builds the rows' change lists from
it.

Works by column: what a cast lost is kept as arrays of row numbers and texts, so that a batch in
which no value fits costs a few arrays, not an object per value. An entry's reason is the word of
the protocol and, if texts are requested, the value as it was sent (:func:`reason_texts`). Not here:
which values fit (``codec.values``). Neighbours: ``codec.decode`` and ``codec.columns`` record what
they lost."""

import json
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.codec.arrow import change_type
from penstock.codec.untyped import Array, pa
from penstock.codec.untyped import compute as pc
from penstock.codec.values import FittedColumn, inexact_doubles
from penstock.model.catalog import FieldPath
from penstock.model.types import MAX_REASON_TEXT, REASON_CUT, ChangeWords, Field

Rows = Callable[[Array], Array]
Mask = Callable[[str], str]

_given_changes = msgspec.json.Decoder(list[dict[str, Any]])
_PLAIN = r'^"([^"\\]*)"$'


ELEMENT = "[]"
"""A step of a :data:`FieldPath`: into the elements of a list."""


def dotted(path: FieldPath) -> str:
    """Returns the text of a path: ``items[].qty``. Two paths may have one text (``a.b`` is also a
    name), so fields are distinguished by their paths."""
    return ".".join(path).replace(f".{ELEMENT}", ELEMENT)


class Loss(NamedTuple):
    """Values of one field: ``path``, of original names and :data:`ELEMENT`. ``rows``: their row
    numbers (int64), a row once for each value.
    ``texts``: the values as they were sent; None: no texts are requested."""

    path: FieldPath
    rows: Array
    texts: Array | None


class Losses:
    """What a batch lost. ``nulled``: values that did not fit; ``rounded``: numbers that lost
    digits; ``shortened``: cursors that lost digits after the microsecond; ``cut``: by field, how
    many times did; ``cut_keys``: those of the key ``exact``, which are not in ``cut``, and its
    numbers that differ from those of their doubles. ``filled``, ``cleared``: marks of deletes that
    have another value than was sent (``codec.delete_marks``).

    ``texts``: entries have the source's text. ``cursor``: the path of the stream's cursor.
    ``mask``: hides what no entry may show (secrets of the configuration)."""

    def __init__(
        self,
        *,
        texts: bool = False,
        cursor: FieldPath = (),
        mask: Mask | None = None,
        exact: Collection[FieldPath] = (),
    ) -> None:
        self.nulled: list[Loss] = []
        self.rounded: list[Loss] = []
        self.shortened: list[Loss] = []
        self.cut: dict[str, int] = {}
        self.cut_keys: list[Loss] = []
        self.filled: list[Loss] = []
        self.cleared: list[Loss] = []
        self._exact = frozenset(exact)
        self._texts, self._cursor, self._mask = texts, cursor, mask

    def note(self, found: FittedColumn, path: FieldPath, rows: Rows, sent: Rows) -> None:
        """Adds what the cast of a column lost. ``rows``: positions -> row numbers; ``sent``:
        positions -> the texts of the values."""
        self._add(self.nulled, found.cast_failures, path, rows, sent)
        self._add(self.rounded, found.rounded, path, rows, sent)
        if found.cut_at is None:
            return
        if path in self._exact:
            self.cut_keys.append(Loss(path, rows(found.cut_at), None))
            return
        self.cut[dotted(path)] = self.cut.get(dotted(path), 0) + found.cut
        if path == self._cursor and self._texts:
            self._add(self.shortened, found.cut_at, path, rows, sent)

    def is_key(self, path: FieldPath) -> bool:
        return path in self._exact

    def note_key(self, texts: Array, numbers: Array, path: FieldPath, rows: Rows) -> None:
        """Adds the values of a key column that differ from those of their doubles."""
        found = inexact_doubles(texts, numbers)
        if found is not None:
            self.cut_keys.append(Loss(path, rows(found), None))

    def _add(
        self, to: list[Loss], places: Array | None, path: FieldPath, rows: Rows, sent: Rows
    ) -> None:
        if places is not None and len(places):
            texts = self._shown(sent(places)) if self._texts else None
            to.append(Loss(path, rows(places), texts))

    def add_repaired(
        self, found: Mapping[int, list[tuple[FieldPath, str]]], fields: Sequence[Field]
    ) -> None:
        """Adds values that are null in repaired bodies: by row, each field with its text. Each
        row's entries come in the order of ``fields``, those of the schema."""
        by_path: dict[FieldPath, list[tuple[int, str]]] = {}
        for row, lost in found.items():
            for path, text in lost:
                by_path.setdefault(path, []).append((row, text))
        added: list[Loss] = []
        for path in sorted(by_path, key=lambda p: _place(p, fields)):
            values = by_path[path]
            texts = self._shown(pa.array([t for _, t in values])) if self._texts else None
            added.append(Loss(path, pa.array([row for row, _ in values], pa.int64()), texts))
        self.nulled[:0] = added

    def take(self, other: "Losses") -> None:
        """Adds what ``other`` lost, of other columns of the same rows."""
        self.nulled += other.nulled
        self.rounded += other.rounded
        self.shortened += other.shortened
        self.cut_keys += other.cut_keys
        self.filled += other.filled
        self.cleared += other.cleared
        self.cut |= other.cut

    def _shown(self, texts: Array) -> Array:
        if self._mask is not None and len(texts):
            distinct, mask = texts.dictionary_encode(), self._mask
            hidden = pa.array([mask(t) for t in distinct.dictionary.to_pylist()], pa.string())
            texts = hidden.take(distinct.indices)
        return reason_texts(texts)

    @property
    def missed(self) -> list[Loss]:
        """Returns the values that are NULL because they did not fit: ``nulled`` without those
        ``filled``."""
        filled = {loss.path: loss.rows for loss in self.filled}
        found: list[Loss] = []
        for loss in self.nulled:
            if loss.path in filled:
                left = pc.invert(pc.is_in(loss.rows, value_set=filled[loss.path]))
                loss = Loss(loss.path, loss.rows.filter(left), None)
            found.append(loss)
        return found

    def first_fields(self, but: FieldPath = ()) -> dict[int, FieldPath]:
        """Returns, for each row that lost something, the first such field, nulled ones first.
        ``but``: a field that does not count."""
        first: dict[int, FieldPath] = {}
        for loss in (*self.nulled, *self.rounded):
            if but and loss.path[: len(but)] == but:
                continue
            for row in loss.rows.to_pylist():
                first.setdefault(row, loss.path)
        return first

    def rows_of(self, paths: Collection[FieldPath]) -> dict[int, FieldPath]:
        """Returns, for each row that lost something in one of the fields ``paths``, the first of
        them."""
        first: dict[int, FieldPath] = {}
        for loss in (*self.nulled, *self.rounded, *self.cut_keys):
            if loss.path in paths:
                for row in loss.rows.to_pylist():
                    first.setdefault(row, loss.path)
        return first

    def change_lists(self, rows: int, given: Mapping[int, bytes], words: ChangeWords) -> Array:
        """Returns the change list of each row: the source's own changes (``given``: raw JSON arrays
        by row), then an entry per field that did not fit, then per field with a rounded number,
        then the cursor that was cut. Empty, never NULL."""
        pieces = [*_given_pieces(given)]
        for losses, change in (
            (self.nulled, words.change),
            (self.rounded, words.rounded),
            (self.shortened, words.rounded),
        ):
            pieces += (_entries(loss, change, words.reason) for loss in losses)
        if not pieces:
            none = pa.array([], change_type())
            return pa.ListArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows + 1), none)
        owners = pa.concat_arrays([owner for owner, _ in pieces])
        entries = pa.concat_arrays([entry for _, entry in pieces])
        if len(pieces) > 1:
            turns = pa.table({"row": owners, "turn": pa.array(range(len(owners)), pa.int64())})
            keys = [("row", "ascending"), ("turn", "ascending")]
            order = pc.sort_indices(turns, sort_keys=keys)
            owners, entries = owners.take(order), entries.take(order)
        lengths = array("i", bytes(4 * (rows + 1)))
        counted = pc.value_counts(owners)
        for row, count in zip(
            counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True
        ):
            lengths[row + 1] = count
        ends = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(lengths)])
        return pa.ListArray.from_arrays(pc.cumulative_sum(ends), entries)


def _place(path: FieldPath, fields: Sequence[Field]) -> tuple[int, ...]:
    """Returns the place of a path among those of a schema."""
    place: list[int] = []
    for step in path:
        if step == ELEMENT and place and not any(f.source == step for f in fields):
            continue
        at = next(i for i, f in enumerate(fields) if f.source == step)
        kind = fields[at].type
        while kind.item is not None:
            kind = kind.item
        place.append(at)
        fields = kind.fields
    return tuple(place)


def counts(losses: Collection[Loss], rejects: Collection[int]) -> dict[str, int]:
    """Counts the values by field, in rows that were not rejected."""
    refused = pa.array(list(rejects), pa.int64())
    found: dict[str, int] = {}
    for loss in losses:
        lost = len(loss.rows)
        if rejects:
            lost -= pc.sum(pc.is_in(loss.rows, value_set=refused)).as_py() or 0
        if lost:
            name = dotted(loss.path)
            found[name] = found.get(name, 0) + lost
    return found


def reason_texts(texts: Array) -> Array:
    """Values unchanged in an entry's reason: a JSON string without its quotes, everything else
    as its JSON text; of more than ``MAX_REASON_TEXT`` bytes the beginning, cut between characters,
    and ``REASON_CUT``."""
    texts = pc.replace_substring_regex(texts, _PLAIN, r"\1")
    odd = pc.or_(pc.starts_with(texts, '"'), pc.greater(pc.binary_length(texts), MAX_REASON_TEXT))
    if pc.any(odd).as_py() is not True:
        return texts
    rest = texts.filter(odd).dictionary_encode()
    short = pa.array([_plain(text) for text in rest.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(texts, odd, short.take(rest.indices))


def _plain(text: str) -> str:
    if text.startswith('"'):
        try:
            text = json.loads(text)
            text.encode()
        except ValueError:
            text = text.encode("ascii", "backslashreplace").decode()
    return shortened(text)


def shortened(text: str) -> str:
    """Cuts ``text`` to at most ``MAX_REASON_TEXT`` bytes of UTF-8."""
    raw = text.encode()
    if len(raw) <= MAX_REASON_TEXT:
        return text
    return raw[: MAX_REASON_TEXT - len(REASON_CUT.encode())].decode("utf-8", "ignore") + REASON_CUT


def _entries(loss: Loss, change: str, word: str) -> tuple[Array, Array]:
    """Returns the rows of a field's entries, one a row, and the entries: values of one row, in
    lists, are in one entry."""
    rows, texts = loss.rows, loss.texts
    if ELEMENT in loss.path:
        if texts is None:
            rows = pc.unique(rows)
        else:
            table = pa.table({"row": rows, "text": texts})
            grouped = table.group_by("row", use_threads=False).aggregate([("text", "list")])
            rows = grouped["row"].combine_chunks()
            joined = pc.binary_join(grouped["text_list"].combine_chunks(), ", ").to_pylist()
            texts = pa.array([shortened(text) for text in joined], pa.string())
    count = len(rows)
    reasons = pa.repeat(pa.scalar(word, pa.string()), count)
    if texts is not None:
        reasons = pc.binary_join_element_wise(reasons, texts, ": ")
    fields = [pa.repeat(pa.scalar(t, pa.string()), count) for t in (dotted(loss.path), change)]
    names = [change_type().field(i) for i in range(3)]
    return rows, pa.StructArray.from_arrays([*fields, reasons], fields=names)


def _given_pieces(given: Mapping[int, bytes]) -> Iterator[tuple[Array, Array]]:
    rows: list[int] = []
    entries: list[dict[str, Any]] = []
    for row, raw in given.items():
        found = _parsed(raw)
        rows += [row] * len(found)
        entries += found
    if rows:
        yield pa.array(rows, pa.int64()), pa.array(entries, change_type())


def _parsed(raw: bytes) -> list[dict[str, Any]]:
    """Returns a source's own change list; empty if it cannot be read, so that the row is kept."""
    try:
        return [
            {k: None if e.get(k) is None else str(e[k]) for k in ("field", "change", "reason")}
            for e in _given_changes.decode(raw)
        ]
    except (msgspec.MsgspecError, UnicodeError):
        return []

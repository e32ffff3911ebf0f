"""Finds, in the change lists of parts and tables, the source's texts of cursors that were cut.

A column of times holds microseconds, one of numbers doubles. An entry in the row's change list
holds what the source sent (``codec.losses``), which orders rows whose cut cursors are equal
(``tables.newest.exactly``). A table without metadata columns has no such lists, but the rows of a
load are still ordered. A file's footer shows whether its lists have such an entry at all; without
one, nothing is read. Runs in a Spark task without Spark. Neighbours: ``newest_rows`` compares the
rows; ``load_frame`` does the same in Spark."""

from pathlib import Path
from typing import Any, NamedTuple, Self

import pyarrow as pa

from penstock.codec.untyped import Array
from penstock.codec.untyped import compute as pc
from penstock.model.segments import TableShape
from penstock.model.types import CHANGES, ChangeWords
from penstock.tables.contract import TableLoad
from penstock.tables.files.old_files import opened
from penstock.tables.load_columns import cut_cursor


def _lists(meta: str | None) -> str:
    """Returns the path of the change lists in a file: under a metadata column, or a part's own
    column."""
    return CHANGES if meta is None else f"{meta}.changes"


class CutCursors(NamedTuple):
    """Reads the cut cursors of a load. ``source``: the cursor's name in change lists. ``words``: of
    entries. ``meta``: the table's metadata column with the lists; None: it has none."""

    source: str
    words: ChangeWords
    meta: str | None

    @classmethod
    def of(cls, load: TableLoad) -> Self | None:
        """Returns None if the change lists have no entries for the load's cursor."""
        source, names = cut_cursor(load), load.policy.metadata
        return (
            None if source is None else cls(source, load.policy.change_words, names and names.meta)
        )

    def in_part(self, path: str, shape: TableShape | None) -> bool:
        """Returns whether a part may have entries for the cursor. ``shape``: the table layout of
        the part."""
        return self._may_have(path, _lists(shape and shape.names.meta))

    def in_table(self, path: Path) -> bool:
        """Like :meth:`in_part`, for a file of the table."""
        return self.meta is not None and self._may_have(path, _lists(self.meta))

    def of_part(self, path: str, shape: TableShape | None) -> Array:
        """Returns for each row the text of its cursor; NULL if it was not cut."""
        return self._texts_in(path, shape and shape.names.meta)

    def of_table(self, path: Path) -> Array:
        """Like :meth:`of_part`, for a file of the table."""
        with opened(path) as file:
            if self.meta not in file.schema_arrow.names:
                return pa.nulls(file.metadata.num_rows, pa.string())
        return self._texts_in(path, self.meta)

    def _texts_in(self, path: Path | str, meta: str | None) -> Array:
        with opened(path) as file:
            found = file.read(columns=[_lists(meta)])[meta or CHANGES]
        return self._texts(found if meta is None else pc.struct_field(found, "changes"))

    def _may_have(self, path: Path | str, column: str) -> bool:
        with opened(path) as file:
            about = file.metadata
            names = [about.schema.column(index).path for index in range(len(about.schema))]
            fields = [
                index
                for index, name in enumerate(names)
                if name.startswith(f"{column}.") and name.endswith(".field")
            ]
            groups = [about.row_group(group) for group in range(about.num_row_groups)]
            return any(
                self._in_bounds(group.column(index).statistics)
                for group in groups
                for index in fields
            )

    def _in_bounds(self, found: Any) -> bool:
        if found is None or not found.has_null_count:
            return True
        if not found.num_values:
            return False
        return not found.has_min_max or found.min <= self.source <= found.max

    def _texts(self, lists: Any) -> Array:
        count, begin = len(lists), f"{self.words.reason}: "
        lists = lists.combine_chunks()
        rows, entries = pc.list_parent_indices(lists), pc.list_flatten(lists)
        reasons = pc.struct_field(entries, "reason")
        cut = pc.and_(
            pc.equal(pc.struct_field(entries, "field"), self.source),
            pc.equal(pc.struct_field(entries, "change"), self.words.rounded),
        )
        cut = pc.fill_null(pc.and_(cut, pc.starts_with(reasons, begin)), False)
        texts = pc.utf8_slice_codeunits(reasons.filter(cut), len(begin)).cast(pa.string())
        numbers: Any = pa.arange(0, count)
        return texts.take(pc.index_in(numbers, value_set=rows.filter(cut).cast(pa.int64())))

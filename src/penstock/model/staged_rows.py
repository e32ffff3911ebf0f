"""Defines what a Spark job has written for a lane to read in place of a connector's messages.

Data only. Neighbours: ``engine.query`` runs the job, ``engine.worker.staged_source`` reads it."""

import msgspec

from penstock.model.catalog import Change, StreamId

KIND, SEND = "penstock_kind", "penstock_send"
"""Columns of staged changes: a row's :class:`Change`, and whether the row is sent."""

GIVEN, BROKEN, LINE, MISFITS = (
    "penstock_given", "penstock_broken", "penstock_line", "penstock_misfits",
)  # fmt: skip
"""Columns of staged rows of text files. :data:`GIVEN`: the texts of a row's fields, or its whole
line, if one of its values, or of a row near it, did not fit its type; NULL: the typed columns have
everything. :data:`BROKEN`: why a line is not a row; :data:`LINE`: its bytes. :data:`MISFITS`: the
numbers of the columns that lost something."""
HELD, REMOVED = "penstock_held", "penstock_removed"
"""``HELD``, of staged changes: the destination surely has a row of this key from Penstock, whatever
happens to this one. ``REMOVED``, of keys whose rows the transforms left out: a removal was sent."""

DELETED_AT = "_ab_cdc_deleted_at"
"""The property with the time at which a row's removal was noticed; destinations know this name."""

LEFT_OUT = "left_out"
"""The folder, within the set of an epoch, with the keys of rows that transforms left out."""

OTHER_FORM = (
    "destination.mapping, stream or options are not those with which its rows were sent before:"
    " every row is sent again"
)
"""Why all rows of a model are sent again (:class:`RowForm`)."""

REJECTED = (Change.null_key.value, Change.duplicate_key.value)
REASONS = {
    Change.null_key.value: "the primary key is null",
    Change.duplicate_key.value: "several rows have this primary key",
}


class RowForm(msgspec.Struct, frozen=True):
    """The form in which a model's rows are sent to a destination connector. ``to``: a digest of its
    stream and that stream's options. ``mapping``: field -> column; empty: all columns."""

    to: str
    mapping: dict[str, str]

    def has_more_than(self, before: "RowForm") -> bool:
        """Returns whether rows in this form have more than the destination got before."""
        if self.to != before.to:
            return True
        if not self.mapping:
            return bool(before.mapping)
        if not before.mapping:
            return any(field != column for field, column in self.mapping.items())
        return not self.mapping.items() <= before.mapping.items()


class _Saved(msgspec.Struct):
    form: RowForm | None = None


def form_of(state: str) -> RowForm | None:
    """Returns the form in which the rows of a model's state were sent; None: it has none."""
    return msgspec.json.decode(state, type=_Saved).form


def cursor_state(stream: StreamId, column: str, value: str) -> str:
    """Returns the state of a model's rows whose highest cursor is ``value``."""
    state = {"stream": stream.name, "cursor_field": column, "cursor": value}
    return msgspec.json.encode(state).decode()


class StagedRows(msgspec.Struct, frozen=True, kw_only=True):
    """``files``: Parquet files, in the order in which their rows are read; their columns are named
    by position (``c0``, ``c1``, ...) and are those of ``columns``, the original names.
    ``required``: those of them that are never null according to Spark. ``states``: for each file
    the state that holds once its rows and those before it are committed. ``last``: the one that
    holds once all of them are. ``at``: when they were read, epoch milliseconds. ``changes``: the
    files have the columns :data:`KIND` and :data:`SEND`. ``removals``: rows have
    :data:`DELETED_AT`. ``given``: the files have the column :data:`GIVEN`, of ``fields`` or of a
    ``record``; empty: they lack it. ``broken``: files with the columns :data:`BROKEN` and
    :data:`LINE`, of lines that are not rows. ``compared``: the places of the primary key; the lane
    records in ``folder`` which rows its transforms leave out. Unchanged rows are then read too, and
    the files have :data:`HELD`."""

    files: tuple[str, ...]
    columns: tuple[str, ...]
    at: int
    required: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    last: str | None = None
    changes: bool = False
    removals: bool = False
    given: str = ""
    broken: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()
    folder: str = ""

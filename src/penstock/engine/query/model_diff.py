"""Stages the differences between a model and its rows that were sent before (reverse ETL).

The snapshot of the sent rows lies next to the log, in sets of changes by epoch (``spark.diff``)::

    snapshots/STREAM/00000007/changes/part-*.parquet    what epoch 7 had to send
    snapshots/STREAM/00000007/changes.json              its columns
    snapshots/STREAM/00000007/table/, table.json        sometimes: all before it, as one set
    snapshots/STREAM/00000007/left_out/*.parquet        the keys of changes that did not go out

A state names the valid sets, and how many files of each. The lane emits one after each file, so
that the ledger's transaction which saves a state moves the snapshot too: it holds what was
committed or acknowledged, nothing else (L1). A set that no state names does not count. Where a set
that a state names is missing, every row is sent again and none is removed.

A row that the transforms leave out is not sent, even if the set has it: the lane records its key
(``engine.worker.transforms.compared_rows``). A state has the rules under which that was found
(``engine.plan.transform_rules``). Under other rules the left-out rows are retried, and in
``mirror`` the sent rows are tested whether they still pass. An old snapshot has no rules: a row
that is left out today may never have been sent, so it is never removed, and no longer counts as
sent.

A state also has the form in which a destination connector got the rows: its stream, options and
mapping. Under a form that has more, every row counts as changed.

Not here: what is compared and how (``spark.diff``), when a lane begins (``query_reader``).
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.engine.log.rejected_keys import (
    MOST_KEYS,
    RejectedKey,
    folder_of,
    rejected_files,
    write_tried_again,
)
from penstock.engine.specs.lane import LaneJob
from penstock.errors import SourceError
from penstock.files import replace, sync_file_system
from penstock.model.catalog import Change, ConfiguredStream, DestinationSyncMode, StreamId
from penstock.model.staged_rows import (
    KIND,
    LEFT_OUT,
    OTHER_FORM,
    REJECTED,
    SEND,
    RowForm,
    StagedRows,
)
from penstock.model.state import StoredState
from penstock.model.types import Field
from penstock.spark.diff import Recheck, files_of, write_changes, write_table
from penstock.spark.model import Model
from penstock.spark.snapshot import (
    ATTEMPT,
    KEY_TEXTS,
    ChangeSet,
    DiffColumn,
    Snapshot,
    columns_of,
    key_as_sent,
    snapshot,
    tried_again,
    with_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SETS = 4  # a snapshot of more is written as one set first
SAMPLES = 5
CHANGES = "changes"

Sets = tuple[tuple[str, int], ...]
"""(set, number of its valid files), oldest first. A set is its epoch's folder and its name."""


class DiffState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's state. ``key``: the primary key under which the rows were compared. ``rules``: the
    transform rules under which the sent rows were determined; None: they were not determined.
    ``form``: in which the destination got the rows; None: it is a table, or the form was not
    recorded."""

    stream: str
    key: tuple[str, ...]
    sets: Sets
    rules: str | None = None
    form: RowForm | None = None


class ModelDiff:
    """Compares a model with its snapshot. ``home``: the folder of the snapshots. A lane stages into
    ``snapshots`` of its own log, which is another folder in a dry run. ``allow_empty``: a model
    without rows may have all of them removed. ``tries_again``: rejected rows count as not sent.
    ``rules``: of the transforms, empty where there are none; None: it is unknown which rows they
    leave out. ``form``: in which a destination connector gets the rows. ``saved``: returns the
    saved states. ``notes``: for the report. ``anew``: whether the last lane sends every row, as it
    is no longer known what was sent. ``unsent``: how many good rows of the model it does not
    send."""

    def __init__(
        self,
        spark: "SparkSession",
        model: Model,
        home: Path,
        *,
        saved: Callable[[], Sequence[StoredState]],
        allow_empty: bool,
        tries_again: bool = False,
        rules: str | None = "",
        form: RowForm | None = None,
    ) -> None:
        self._spark, self._model, self._home, self._saved = spark, model, home, saved
        self._allow_empty, self._tries_again = allow_empty, tries_again
        self._rules, self._form = rules, form
        self._doubted: Path | None = None  # the set of which some rows may never have been sent
        self.notes: list[str] = []
        self.anew = False
        self.unsent = 0

    def stage(
        self,
        lane: LaneJob,
        rows: "DataFrame",
        fields: Sequence[Field],
        at: int,
        *,
        carried: tuple[str, ...] = (),
        removes: bool = True,
    ) -> StagedRows:
        """Stages the differences. ``carried``: columns of ``rows`` that are not values. ``removes``
        False: missing rows may still exist at the source. Raises ``SourceError``."""
        stream = lane.streams[0].configured
        names = [f.source for f in fields]
        key = tuple(path[0] for path in stream.primary_key)
        places, wanted = [names.index(name) for name in key], columns_of(rows.drop(*carried))
        sends, self.anew = self._sends(stream, removes), False
        home = self._home / folder_of(stream.id)
        before = self._sets(lane.states, stream, key, home)
        read = [self._read(home, name, files) for name, files in before]
        then = key_as_sent(read, wanted, places)
        then_sent = _decoded(lane.states, stream.id) if before else None
        rules = self._rules if then_sent is None else then_sent.rules
        form = self._form if then_sent is None else then_sent.form
        recheck = self._recheck(stream, rules, form)
        was = snapshot(self._spark, read, then, places)
        if was is not None and then != wanted:
            was = with_key(was, wanted, places)
        if was is None and any(one.files for one in read):
            self._lost(stream.id, "a column of its primary key has another type now")
        own, epoch = _own_folder(lane, stream)
        kept = before if was is not None else ()
        if was is not None and (len(before) > MOST_SETS or then != wanted):
            kept = (self._as_one(was, own, epoch),)
            was = snapshot(self._spark, [self._read(own, *kept[0])], wanted, places)
        files, counts = write_changes(
            rows, was, places, sends, own / epoch / CHANGES, self._model, recheck, carried=carried
        )
        _keep_columns(own / epoch / CHANGES, wanted)
        sync_file_system(own)  # a state is durable, so the files that it names must be too
        self._refuse_empty(stream, counts, sends)
        self._tell(lane, counts, files, names, sends, first=was is None)
        if was is not None:
            self._try_again(stream.id, read, then, places, own / epoch, files)
        if recheck.doubted:
            self._doubted = own / epoch
        named = [(*kept, (f"{epoch}/{CHANGES}", number + 1)) for number in range(len(files))]
        # Every row was tested under the current rules once the last file was read.
        under = [(rules, form) for _ in named[1:]] + [(self._rules, self._form)]
        moved = kept != before or ((rules or self._rules) and rules != self._rules)
        moved = moved or form != self._form
        last = _state(stream, key, kept, self._rules, self._form) if moved and not files else None
        return StagedRows(
            files=files, columns=tuple(names), last=last, at=at, changes=True,
            required=tuple(f.source for f in fields if not f.nullable),
            states=tuple(_state(stream, key, n, *u) for n, u in zip(named, under, strict=False)),
            removals=Change.removed in stream.sends,
            compared=tuple(places) if self._rules else (),
            folder=str(own / epoch),
        )  # fmt: skip

    def _sends(self, stream: ConfiguredStream, removes: bool) -> tuple[Change, ...]:
        """Returns the kinds of rows that are sent. ``removes`` False: no removals."""
        if removes or Change.removed not in stream.sends:
            return stream.sends
        self.notes.append(
            f"{stream.id}: rows that are gone are not removed in this run: they may be among the"
            " lines that were rejected"
        )
        return tuple(change for change in stream.sends if change is not Change.removed)

    def refuse_unheaded(self, stream: ConfiguredStream, path: str) -> None:
        """Raises ``SourceError`` where files without a header, such as those that are being
        written, would replace the existing rows."""
        over = stream.destination_sync_mode is DestinationSyncMode.overwrite or stream.replaces
        if not over or self._allow_empty:
            return
        raise SourceError(
            f"{stream.id}: no file of {path} has a header, and its rows would be replaced by none:"
            " nothing was replaced",
            code="source.empty_model",
            stream=str(stream.id),
            hint="if that is intended, set allow_empty to true in the source's config",
        )

    def forgotten(self, stream: ConfiguredStream) -> str | None:
        """Returns the state for rows that are not compared and replace others at the destination:
        it records that the rows sent before are no longer known. None: they never were, or no row
        is replaced."""
        state = _decoded(self._saved(), stream.id)
        if state is None or not state.sets:
            return None
        if stream.destination_sync_mode is DestinationSyncMode.append and not stream.replaces:
            return None
        self.notes.append(
            f"{stream.id}: these rows are not compared with those that were sent before: the next"
            " run that compares sends every row, and removes none"
        )
        return _state(stream, state.key, (), None, None)

    def clean(self, lane: LaneJob) -> None:
        """Removes sets older than the newest that the lane's state names, and sets that it does not
        name."""
        stream = lane.streams[0].configured
        state = _decoded(lane.states, stream.id)
        if state is None or not state.sets or lane.dry:
            return
        named = {name.partition("/")[0] for name, _ in state.sets}
        home = self._home / folder_of(stream.id)
        for folder in home.iterdir() if home.is_dir() else ():
            if folder.name < max(named) and folder.name not in named:
                shutil.rmtree(folder, ignore_errors=True)

    def _sets(
        self,
        states: Sequence[StoredState],
        stream: ConfiguredStream,
        key: tuple[str, ...],
        home: Path,
    ) -> Sets:
        """Returns the valid sets; none where nothing was sent, or where it is unknown what was."""
        state = _decoded(states, stream.id)
        if state is None:
            return ()
        lost = "" if state.sets else "other rows were written since, which were not compared"
        if state.key != key:
            lost = f"the primary key was {', '.join(state.key)}"
        for name, count in state.sets:
            kept = (home / f"{name}.json").is_file()
            if not kept or len(files_of(home / name)) < count:
                lost = "its snapshot is missing (another home, or it was deleted)"
        if lost:
            self._lost(stream.id, lost)
            return ()
        return state.sets

    def _lost(self, stream: StreamId, why: str) -> None:
        self.anew = True
        self.notes.append(
            f"{stream}: the snapshot is unusable, as {why}: every row is sent, and no row is "
            "removed"
        )

    def _read(self, home: Path, name: str, count: int) -> ChangeSet:
        folder = home / name
        columns = msgspec.json.decode(
            folder.with_suffix(".json").read_bytes(), type=tuple[DiffColumn, ...]
        )
        if self._model.text is not None:
            columns = tuple(_of_64_bits(column) for column in columns)
        # A table holds the rows of sets that were read without their rejected and left-out rows.
        rejected, left_out = (), ()
        if folder.name == CHANGES:
            rejected = rejected_files(folder.parent)
            left_out = tuple(sorted(str(p) for p in (folder.parent / LEFT_OUT).glob("*.parquet")))
        return ChangeSet(files_of(folder)[:count], columns, rejected, self._tries_again, left_out)

    def _recheck(
        self, stream: ConfiguredStream, rules: str | None, form: RowForm | None
    ) -> Recheck:
        """Returns what is tested again. ``rules``, ``form``: those under which the snapshot was
        made."""
        inserts = Change.changed not in stream.sends
        again = self._form is not None and form is not None and self._form.has_more_than(form)
        again = again and not inserts
        if again:
            self.notes.append(f"{stream.id}: {OTHER_FORM}")
        if rules is None and self._rules:
            if inserts:
                self.notes.append(
                    f"{stream.id}: the snapshot of sent rows does not record which rows the "
                    "transforms left out before: each of them counts as sent, and is not sent later"
                )
            return Recheck(left_out=True, same=not inserts, doubted=True, again=again)
        if rules == self._rules:
            return Recheck(again=again)
        same = Change.removed in stream.sends and bool(self._rules)
        return Recheck(left_out=True, same=same, again=again)

    def sent(self) -> None:
        """Notes the lane's findings about a snapshot that does not show which rows were sent."""
        if self._doubted is None:
            return
        if any((self._doubted / LEFT_OUT).glob("*.parquet")):
            self.notes.append(
                "the snapshot of sent rows does not record which rows the transforms left out: "
                "those that they leave out today are not removed at the destination, and no "
                "longer count as sent"
            )
        self._doubted = None

    def _try_again(
        self,
        stream: StreamId,
        read: Sequence[ChangeSet],
        wanted: Sequence[DiffColumn],
        places: Sequence[int],
        epoch: Path,
        files: Sequence[str],
    ) -> None:
        """Keeps which rejected rows this epoch retries, and notes how many it sends."""
        if not self._tries_again or not any(one.rejected for one in read):
            return
        found = tried_again(self._spark, read, wanted, places).cache()
        try:
            keys = found.select(KEY_TEXTS, ATTEMPT).limit(MOST_KEYS).collect()
            write_tried_again(epoch, (RejectedKey(tuple(r[0]), r[1]) for r in keys))
            sent = 0
            if keys and files:
                staged = self._spark.read.parquet(*files).filter(SEND)
                sent = staged.join(found, [f"c{i}" for i in places], "left_semi").count()
        finally:
            found.unpersist()
        if sent:
            self.notes.append(f"{stream}: {sent:,} rows that were rejected before are sent again")

    def _as_one(self, was: Snapshot, own: Path, epoch: str) -> tuple[str, int]:
        files, columns = write_table(was, own / epoch / "table", self._model)
        _keep_columns(own / epoch / "table", columns)
        return f"{epoch}/table", len(files)

    def _refuse_empty(
        self, stream: ConfiguredStream, counts: dict[str, int], sends: Sequence[Change]
    ) -> None:
        """Raises ``SourceError`` where rows would be removed, and the model has no row, or none
        with a key of its own: such a query is broken, and does not prove that rows were deleted."""
        refused = sum(counts[name] for name in REJECTED)
        here = sum(counts.values()) - counts[Change.removed.value] - refused
        gone = counts[Change.removed.value]
        if here or not gone or Change.removed not in sends or self._allow_empty:
            return
        what = "no row came"
        if refused:
            what = f"none of the {refused:,} rows has a key of its own"
        raise SourceError(
            f"{stream.id}: {what}, and {gone:,} rows that were sent before would be removed:"
            " nothing was removed",
            code="source.empty_model",
            stream=str(stream.id),
            hint="if that is intended, set allow_empty to true: in the source's config, or as a"
            " keyword of penstock.write",
        )

    def _tell(
        self,
        lane: LaneJob,
        counts: dict[str, int],
        files: Sequence[str],
        names: Sequence[str],
        sends: Sequence[Change],
        *,
        first: bool,
    ) -> None:
        stream = lane.streams[0].configured
        sent = [c for c in (Change.added, Change.changed, Change.removed) if c in sends]
        parts = [
            f"{counts[c.value]:,} {c.value}{'' if c in sent or first else ' (not sent)'}"
            for c in (Change.added, Change.changed, Change.removed)
        ]
        refused = counts[Change.null_key.value] + counts[Change.duplicate_key.value]
        parts += [f"{counts[Change.same.value]:,} as before", f"{refused:,} refused"]
        here = (Change.same, Change.added, Change.changed)
        self.unsent = sum(counts[c.value] for c in here if c not in sends)
        self.notes.append(f"{stream.id}: rows {', '.join(parts)}")
        if lane.dry and files:
            self.show(stream.id, self._spark.read.parquet(*files).filter(SEND), names)

    def show(self, stream: StreamId, rows: "DataFrame", names: Sequence[str]) -> None:
        """Notes the first of the staged rows that would be sent, each with its kind, if it has
        one."""
        kinds = KIND in rows.columns
        for row in rows.limit(SAMPLES).collect():
            record = {name: row[f"c{index}"] for index, name in enumerate(names)}
            text = msgspec.json.encode(record, enc_hook=str).decode()
            self.notes.append(f"{stream}: {row[KIND] if kinds else 'row'}: {text}")


def _of_64_bits(column: DiffColumn) -> DiffColumn:
    """Returns the column of a file with the current integer type: an earlier version, in which
    Spark read files, kept small integers as INT, which compare equally."""
    return DiffColumn(column.name, "bigint") if column.type == "int" else column


def _decoded(states: Sequence[StoredState], stream: StreamId) -> DiffState | None:
    """Returns the stream's state; None where it has none, or one of a cursor."""
    blob = next((s.blob for s in states if s.scope.stream == stream), None)
    saved = cast(dict[str, Any], msgspec.json.decode(blob)) if blob is not None else {}
    return msgspec.convert(saved, DiffState) if "sets" in saved else None


def _state(
    stream: ConfiguredStream,
    key: tuple[str, ...],
    sets: Sets,
    rules: str | None,
    form: RowForm | None,
) -> str:
    return msgspec.json.encode(DiffState(stream.id.name, key, sets, rules, form)).decode()


def _own_folder(lane: LaneJob, stream: ConfiguredStream) -> tuple[Path, str]:
    """Returns the folder of the stream's sets in the log, and the epoch's empty folder in it."""
    own, epoch = Path(lane.log_root) / "snapshots" / folder_of(stream.id), f"{lane.epoch:08d}"
    shutil.rmtree(own / epoch, ignore_errors=True)
    (own / epoch).mkdir(mode=0o700, parents=True)
    return own, epoch


def _keep_columns(folder: Path, columns: Sequence[DiffColumn]) -> None:
    replace(folder.with_suffix(".json"), msgspec.json.encode(columns), durable=True)

"""The report counts rows that tables left out as older, and says where all of a stream were."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.reporting.accounting import Accounting
from penstock.engine.specs.plan import SyncOutcome
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.segments import Load, PartRef, WriteDisposition
from penstock.tables.contract import LoadResult

USERS = StreamId(None, "users")
KEPT = WriteDisposition(
    mode=DestinationSyncMode.append_dedup, primary_key=(("id",),), cursor=("at",)
)


def load(rows: int) -> Load:
    return Load(
        key="k", number=1, stream=USERS, disposition=KEPT, segments=(),
        parts=(PartRef("part", rows, 1, 1, 0),), schema_version=1, generation=1, read=rows,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (LoadResult(0, superseded=3), True),
        (LoadResult(1, superseded=2), False),
        (LoadResult(0, superseded=2), False),  # a row and its delete, of a key that is new
        (LoadResult(3), False),
    ],
)
def test_a_stream_whose_every_row_was_left_out_says_so(result: LoadResult, told: bool) -> None:
    progress: Any = SimpleNamespace(note=lambda text: None, phase=lambda *_: None)
    accounting = Accounting(progress)
    accounting.planned[USERS] = SimpleNamespace(disposition=KEPT, queried=False)  # type: ignore[assignment]
    accounting.loaded(load(3), result)
    outcome = SyncOutcome(complete={USERS}, failed={}, errors=[])
    report = accounting.report(
        run="r", pipeline="p", started_at="", seconds=1, outcome=outcome, log=""
    )
    assert report.streams[0].superseded == result.superseded
    notes = [note for note in report.notes if "no row was written" in note]
    assert bool(notes) is told
    assert all("cursor at" in note and "3 rows" in note for note in notes)


@pytest.mark.parametrize(
    ("note", "guarantee"),
    [("at-least-once: users (cursor at): ...", "at-least-once"), ("a note", "exactly-once")],
)
def test_the_label_is_that_of_the_plans_note_before_any_row(note: str, guarantee: str) -> None:
    """A run that is stopped while Spark starts has the notes of its plan, and no stream yet."""
    progress: Any = SimpleNamespace(note=lambda text: None, phase=lambda *_: None)
    accounting = Accounting(progress)
    accounting.note(note)
    outcome = SyncOutcome(complete=set(), failed={}, errors=[])
    report = accounting.report(
        run="r", pipeline="p", started_at="", seconds=1, outcome=outcome, log=""
    )
    assert (report.guarantee, report.notes) == (guarantee, [note])

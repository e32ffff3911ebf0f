"""Which rows of a compared model are tried again, when the rules of its transforms are not those
under which it was told which rows went out (issue 35, B2)."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.engine.query.model_diff import DiffState, ModelDiff
from penstock.model.catalog import (
    Change,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.staged_rows import RowForm
from penstock.spark.diff import Recheck
from penstock.spark.model import Model

INSERT = (Change.added,)
UPSERT = (Change.added, Change.changed)
MIRROR = (*UPSERT, Change.removed)
DOUBT = Recheck(left_out=True, same=True, doubted=True)


def recheck(
    sends: tuple[Change, ...],
    before: str | None,
    now: str | None,
    *,
    sent: RowForm | None = None,
    form: RowForm | None = None,
) -> tuple[Recheck, list[str]]:
    stream = ConfiguredStream(
        stream=Stream(id=StreamId(None, "m"), json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append_dedup,
        sends=sends,
    )
    model = Model(name="m", query="SELECT 1")
    made: Any = ModelDiff
    diff = made(None, model, Path(), saved=list, allow_empty=False, rules=now, form=form)
    return cast(Recheck, diff._recheck(stream, before, sent)), diff.notes


@pytest.mark.parametrize("sends", [INSERT, UPSERT, MIRROR])
@pytest.mark.parametrize("rules", ["", "a", None])
def test_nothing_is_tried_again_under_the_same_rules(
    sends: tuple[Change, ...], rules: str | None
) -> None:
    assert recheck(sends, rules, rules) == (Recheck(), [])


def test_other_rules_try_again_what_was_left_out_and_in_mirror_what_was_sent() -> None:
    assert recheck(INSERT, "a", "b")[0] == Recheck(left_out=True)
    assert recheck(UPSERT, "a", "b")[0] == Recheck(left_out=True)
    assert recheck(MIRROR, "a", "b")[0] == Recheck(left_out=True, same=True)
    assert recheck(MIRROR, "a", "")[0] == Recheck(left_out=True), "nothing leaves rows out"


def test_a_snapshot_that_does_not_tell_is_doubted_where_something_leaves_rows_out() -> None:
    assert recheck(MIRROR, None, "a") == (DOUBT, [])
    assert recheck(UPSERT, None, "a") == (DOUBT, [])
    assert not recheck(MIRROR, None, "")[0].doubted


def test_under_insert_such_rows_count_as_sent_and_a_note_says_so() -> None:
    found, notes = recheck(INSERT, None, "a")
    assert not found.same and len(notes) == 1 and "counts as sent" in notes[0]


ONE, MORE = RowForm("one", {"id": "id"}), RowForm("one", {"id": "id", "label": "name"})


def test_L8_a_form_that_has_more_counts_every_row_as_changed() -> None:
    for sends in (UPSERT, MIRROR, (Change.changed,)):
        found, notes = recheck(sends, "", "", sent=ONE, form=MORE)
        assert found == Recheck(again=True)
        assert len(notes) == 1 and "every row is sent again" in notes[0]
        assert recheck(sends, "a", "b", sent=ONE, form=MORE)[0].again
        assert recheck(sends, None, "a", sent=ONE, form=MORE)[0].again
        assert recheck(sends, "", "", sent=MORE, form=ONE) == (Recheck(), [])
        assert recheck(sends, "", "", sent=ONE, form=ONE) == (Recheck(), [])


def test_no_row_is_sent_again_where_it_is_not_known_what_was_sent_or_to_a_table() -> None:
    assert recheck(MIRROR, "", "", sent=None, form=MORE) == (Recheck(), [])
    assert recheck(MIRROR, "", "", sent=ONE, form=None) == (Recheck(), [])
    assert recheck(INSERT, "", "", sent=ONE, form=MORE) == (Recheck(), [])


def test_a_state_of_earlier_code_has_no_rules_and_no_form() -> None:
    old = b'{"stream":"m","key":["id"],"sets":[["00000001/changes",1]]}'
    state = msgspec.json.decode(old, type=DiffState)
    assert (state.rules, state.form) == (None, None)

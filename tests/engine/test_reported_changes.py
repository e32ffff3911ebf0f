"""L8: rows that were lost, frozen or doubled in public reports about change logs and deletes. The
connectors are written from the reports; the right rows were decided before the runs."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench
from reported import Reported

from reported_connectors import GONE, INTEGER, MARKS, POSITIONS, TEXT, changes, stream

pytestmark = pytest.mark.dear

BOTH = pytest.mark.parametrize("protocol", ["airbyte", "singer"])
EACH = pytest.mark.parametrize(
    ("protocol", "loads"), [("airbyte", "one load"), ("singer", "a load each")]
)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def row(protocol: str, id: int, v: str | None, at: int | None, *, gone: bool = False) -> list[Any]:
    """A change; a delete has its key, its position and its mark."""
    record: dict[str, Any] = {"id": id, POSITIONS[protocol]: at}
    return ["t", {**record, MARKS[protocol]: GONE} if gone else {**record, "v": v}]


def soft(bench: Bench) -> dict[str, Any]:
    return {"destination": {"use": f"parquet:{bench.folder / 'lake'}", "deletes": "soft"}}


@BOTH
def test_L8_updates_pass_where_the_positions_of_a_log_begin_again(
    bench: Bench, protocol: str
) -> None:
    """airbytehq/airbyte#51559: after an upgrade of source-mysql, `_ab_cdc_cursor` had 15 digits in
    place of 18. All updates and deletes of older rows were left out, and the runs were green."""
    here = Reported(bench, protocol, t=changes(protocol))
    first, then = 172674661100006716, 174577633700488
    here.sends(*(row(protocol, i, "old", first + i) for i in (1, 2, 3)), scope="GLOBAL")
    failed = here.send(
        row(protocol, 1, "new", then),
        {"state": 1},
        row(protocol, 2, "not sealed", then + 1),
        {"exit": 1},
        scope="GLOBAL",
    )
    assert failed.exit_code != 0
    report = here.sends(
        row(protocol, 2, "new", then + 1),
        row(protocol, 2, "newer", then + 1),  # airbytehq/airbyte#23850: one position for several
        row(protocol, 3, None, then + 2, gone=True),
        row(protocol, 4, "new", then + 3),
        scope="GLOBAL",
    )
    assert here.values("id", "v") == [(1, "new"), (2, "newer"), (4, "new")]
    assert report.streams[0].written == 3
    (planned,) = bench.plan(here.use)["streams"]
    assert planned["newest_by"] == {"by": "arrival", "field": []}


@pytest.mark.parametrize("discovers", [True, False])
def test_L8_the_positions_of_a_tap_that_does_not_say_log_based_order_nothing(
    bench: Bench, discovers: bool
) -> None:
    """MeltanoLabs/tap-postgres names `_sdc_lsn` as the bookmark of its log. A target sees that in
    SCHEMA, and no method; a catalog may have another. After a failover positions begin again."""
    here = Reported(bench, "singer", t={**changes("singer"), "cursor": ["_sdc_lsn"], "log": False})
    if not discovers:
        asked = 'if "--discover" in sys.argv:'
        refuses = f"{asked} sys.exit('unrecognized arguments: --discover')\nif False:"
        here.script.write_text(here.script.read_text().replace(asked, refuses))
    here.sends(*(row("singer", i, "old", 100 + i) for i in (1, 2, 3)))
    here.sends(row("singer", 1, "new", 5), row("singer", 2, None, 6, gone=True))
    assert here.values("id", "v") == [(1, "new"), (3, "old")]


def test_a_cursor_that_is_no_position_in_a_log_decides(bench: Bench) -> None:
    """The user may read such a source by a column of the table."""
    of = {**changes("airbyte", at=INTEGER), "cursor": ["at"], "log": False}
    here = Reported(bench, "airbyte", t=of)
    here.sends(["t", {"id": 1, "v": "new", "at": 2, "_ab_cdc_lsn": 1}])
    here.sends(["t", {"id": 1, "v": "late", "at": 1, "_ab_cdc_lsn": 2}])
    assert here.values("id", "v") == [(1, "new")]


@EACH
def test_L8_rows_whose_keys_were_exchanged_in_one_transaction(
    bench: Bench, protocol: str, loads: str
) -> None:
    """MaterializeInc/materialize#6553: an update of a key is a delete and an insert at one
    position; the row was deleted. Here 1 and 2 change places by way of 3."""
    here = Reported(bench, protocol, t=changes(protocol))
    here.sends(row(protocol, 1, "a", 1), row(protocol, 2, "b", 1))
    sent = [
        row(protocol, 1, None, 2, gone=True),
        row(protocol, 3, "a", 2),
        row(protocol, 2, None, 2, gone=True),
        row(protocol, 1, "b", 2),
        row(protocol, 3, None, 2, gone=True),
        row(protocol, 2, "a", 2),
    ]
    for part in [sent] if loads == "one load" else [[one] for one in sent]:
        here.sends(*part)
    assert here.values("id", "v") == [(1, "b"), (2, "a")]


@EACH
def test_L8_a_row_that_was_inserted_and_deleted_at_one_position_is_gone(
    bench: Bench, protocol: str, loads: str
) -> None:
    """airbytehq/airbyte#4160, apache/hudi#3266: an insert and a delete of a key had one extraction
    time and one position; a random one of them won. 4 was inserted again after its delete."""
    here = Reported(bench, protocol, t=changes(protocol))
    sent = [
        row(protocol, 6, "Opel", 5),
        row(protocol, 6, None, 5, gone=True),
        row(protocol, 4, "BMW", 5),
        row(protocol, 4, None, 5, gone=True),
        row(protocol, 4, "BMW again", 5),
    ]
    for part in [sent] if loads == "one load" else [[one] for one in sent]:
        here.sends(*part)
    assert here.values("id", "v") == [(4, "BMW again")]


@BOTH
def test_a_row_that_is_inserted_again_is_no_longer_marked(bench: Bench, protocol: str) -> None:
    """PeerDB-io/peerdb#705: a row that was inserted again after a soft delete kept its mark. The
    record of an insert may lack the mark, or have null there."""
    here = Reported(bench, protocol, t=changes(protocol))
    mark, keeps = MARKS[protocol], soft(bench)
    here.sends(row(protocol, 1, "a", 1), row(protocol, 1, None, 2, gone=True), **keeps)
    assert [(r["v"], r[mark] is None) for r in here.rows()] == [("a", False)]
    here.sends(row(protocol, 1, "b", 3), **keeps)
    assert [(r["v"], r[mark]) for r in here.rows()] == [("b", None)]
    here.sends(row(protocol, 1, None, 4, gone=True), **keeps)
    here.sends(["t", {"id": 1, "v": None, POSITIONS[protocol]: 5, mark: None}], **keeps)
    assert [(r["v"], r[mark]) for r in here.rows()] == [(None, None)], "a null that was sent"


LISTS = {"type": ["null", "array"], "items": TEXT}
OBJECTS = {"type": ["null", "object"], "properties": {"t": TEXT}}
DELETES = [True, 1, "1709251200", "2024-01-01", GONE, "yes"]
LIVES = [None, "", False, 0, "0.0", "false", "0000-00-00", {}, [], "null"]
UNKNOWN = ["D", {"t": GONE}, [GONE]]


@pytest.mark.parametrize(("protocol", "declared"), [("airbyte", OBJECTS), ("singer", LISTS)])
def test_l9_a_mark_that_is_declared_an_object_or_a_list_is_judged_as_it_was_sent(
    bench: Bench, protocol: str, declared: dict[str, Any]
) -> None:
    """What is no object there was taken for no mark: the row lived on, without its values."""
    here = Reported(bench, protocol, t=changes(protocol, **{MARKS[protocol]: declared}))
    marks = [*DELETES, *LIVES, *UNKNOWN]
    here.sends(*(row(protocol, i, "old", 1) for i in range(len(marks))))
    sent = [
        ["t", {"id": i, "v": "new", POSITIONS[protocol]: 2, MARKS[protocol]: mark}]
        for i, mark in enumerate(marks)
    ]
    report = here.sends(*sent)
    found = {r["id"]: r["v"] for r in here.rows()}
    assert [m for i, m in enumerate(marks) if i not in found] == DELETES
    assert [m for i, m in enumerate(marks) if found.get(i) == "new"] == LIVES
    assert report.streams[0].rejected == len(UNKNOWN)
    here.sends(row(protocol, 99, "later", 3))
    assert {r["id"] for r in here.rows()} == {*found, 99}, "the table's live marks delete nothing"


@pytest.mark.parametrize("method", ["INCREMENTAL", "LOG_BASED"])
def test_a_version_that_is_activated_again_removes_nothing(bench: Bench, method: str) -> None:
    """meltano/sdk#2103, MeltanoLabs/target-postgres#340: a tap says ACTIVATE_VERSION before and
    after the rows of its version. All rows but those of the last batch were deleted."""
    cursor = "id" if method == "INCREMENTAL" else None
    here = Reported(
        bench, "singer", t=stream({"id": INTEGER, "v": TEXT}, cursor=cursor, method=method)
    )
    active = {"message": {"type": "ACTIVATE_VERSION", "stream": "t", "version": 5}}
    rows = [["t", {"id": i, "v": "a"}, 5] for i in range(6)]
    here.sends(active, *rows[:3], {"state": 1}, *rows[3:], active)
    assert here.values("id") == [(i,) for i in range(6)]
    here.sends(active, ["t", {"id": 6, "v": "a"}, 5], {"state": 2}, active)
    assert here.values("id") == [(i,) for i in range(7)]


@BOTH
def test_L6_a_refresh_that_was_published_before_its_source_failed_is_not_begun_again(
    bench: Bench, protocol: str
) -> None:
    """airbytehq/airbyte#86347: the stream of a refresh was complete, then the source failed. The
    next attempt put the few rows that it read in place of all."""
    here = Reported(bench, protocol, t=stream({"id": INTEGER, "v": TEXT, "n": INTEGER}, cursor="n"))
    here.sends(*(["t", {"id": i, "v": "old", "n": i}] for i in range(4)))
    complete = {
        "type": "TRACE",
        "trace": {
            "type": "STREAM_STATUS",
            "emitted_at": 1.0,
            "stream_status": {"stream_descriptor": {"name": "t"}, "status": "COMPLETE"},
        },
    }
    ends = [{"message": complete}] if protocol == "airbyte" else []
    fresh = [["t", {"id": i, "v": "fresh", "n": i}] for i in range(6)]
    failed = here.send(*fresh, {"state": 6}, *ends, {"exit": 1}, recreate=True)
    assert failed.exit_code != 0
    whole = [(i, "fresh") for i in range(6)]
    old = [(i, "old") for i in range(4)]
    assert here.values("id", "v") == (whole if ends else old), "a tap has no such status"
    here.sends(["t", {"id": 6, "v": "later", "n": 6}])
    assert here.values("id", "v") == [*whole, (6, "later")]
    given = here.given()
    assert (given[0]["stream"]["stream_state"] if ends else given["bookmarks"]["t"]) == {"at": 6}

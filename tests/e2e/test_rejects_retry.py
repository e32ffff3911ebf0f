"""`penstock rejects retry`: rejects get another try after a fix, each once by its id, and no
retried row replaces or brings back a later one (issue 40; L1, L3, L8, L9). The right rows were
decided before the runs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import NAME, Answer, Heard, Ran, Site, assert_adds_up

from penstock.config.load import load_pipeline
from penstock.engine.run.reject_retry import (
    NOT_WHOLE,
    READ_IN_FULL,
    REMOVED,
    REPLACED,
    RESET,
    SENT_AGAIN,
    RetryRequest,
)
from penstock.engine.run.start import run_pipeline
from penstock.model.report import Report
from reported_connectors import INTEGER, MARKS, TEXT, TIME, script, stream

pytestmark = [pytest.mark.spark, pytest.mark.dear, pytest.mark.timeout(300)]

Make = Callable[..., Site]
MORNING, NOON, EVENING = (f"2024-05-01T{hour}:00:00Z" for hour in ("08", "12", "20"))


class Shop:
    """A pipeline of one connector. Under ``strict`` a value that does not fit rejects its record:
    the fix is to take it as NULL."""

    def __init__(self, here: Site, protocol: str, **streams: Any) -> None:
        self.here, self.streams, self.protocol = here, streams, protocol
        self._world = here.folder / "world.json"
        program = here.folder / "connector.py"
        program.write_text(script(protocol, str(self._world), str(here.folder / "state.json")))
        self.parts: dict[str, Any] = {"use": f"{protocol}:{sys.executable} {program}"}

    def sends(self, *sent: Any, status: str = "succeeded", **parts: Any) -> Ran:
        self.offers(*sent)
        done = self.here.run(**{**self.parts, "strict": True, "max_rejected": "100%", **parts})
        assert done.status == status, done.error
        return done

    def offers(self, *sent: Any) -> None:
        self._world.write_text(json.dumps({"streams": self.streams, "sent": sent}))

    def retries(self, *, dry_run: bool = False, **parts: Any) -> Report:
        path = self.here.write(**{**self.parts, **parts})
        heard = Heard()
        report = run_pipeline(
            load_pipeline(path, env={}),
            self.here.home,
            observer=heard,
            retry=RetryRequest(),
            dry_run=dry_run,
        )
        assert_adds_up(report)
        return report

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        folder = self.here.lake / table
        if self.here.format == "delta":
            arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
        else:
            files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
            arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
        return sorted((tuple(r[c] for c in columns) for r in arrow.to_pylist()), key=repr)


def tried(report: Report) -> tuple[int, dict[str, int]]:
    """(how many were tried, how many were left for which reason)."""
    assert report.status == "succeeded", report.error
    assert report.retried is not None
    return report.retried.tried, {left.why: left.rejects for left in report.retried.left}


@pytest.mark.parametrize(("protocol", "format"), [("airbyte", "delta"), ("singer", "parquet")])
def test_l8_appended_rows_come_once(site: Make, protocol: str, format: str) -> None:
    events = stream({"id": INTEGER, "n": INTEGER, "at": TIME}, (), "at")
    shop = Shop(site(format), protocol, events=events)
    shop.parts["streams"] = [{"name": "events", "mode": "incremental_append"}]
    shop.sends(
        ["events", {"id": 1, "n": 10, "at": MORNING}],
        ["events", {"id": 2, "n": "ten", "at": MORNING}],
        ["events", {"id": 3, "n": "twelve", "at": NOON}],
    )
    state = shop.here.described() if protocol == "airbyte" else None
    shop.offers(["events", {"id": 9, "n": 9, "at": EVENING}])  # nothing is read by a retry

    # without a fix they are rejected once more, under new ids
    assert tried(shop.retries(strict=True)) == (2, {})
    assert shop.rows("events", "id") == [(1,)]
    # a dry run keeps nothing
    dry = shop.retries(dry_run=True)
    assert (tried(dry), dry.streams[0].committed) == ((2, {}), 2)
    assert shop.rows("events", "id") == [(1,)]

    done = shop.retries()
    assert tried(done) == (2, {})
    assert (done.streams[0].committed, done.streams[0].written) == (2, 2)
    assert done.guarantee == "exactly-once" or protocol  # what appends says is the plan's
    assert shop.rows("events", "id", "n") == [(1, 10), (2, None), (3, None)]
    assert tried(shop.retries()) == (0, {})
    assert shop.rows("events", "id") == [(1,), (2,), (3,)]
    assert {r["retried"] is None for r in shop.here.rejects()} == {False}
    if state is not None:  # L1: no state moved
        assert shop.here.described() == state


@pytest.mark.parametrize(
    ("format", "cursors"),
    [("delta", {"time": TIME, "number": INTEGER}), ("parquet", {"text": TEXT})],
    ids=["delta", "parquet"],
)
def test_l9_a_keyed_row_goes_by_its_cursor(
    site: Make, format: str, cursors: dict[str, Any]
) -> None:
    """Each stream has a cursor of another type."""
    streams = {
        name: stream({"id": INTEGER, "n": INTEGER, "at": cursor}, ("id",), "at")
        for name, cursor in cursors.items()
    }
    moments = {
        name: (8, 12, 20) if name == "number" else (MORNING, NOON, EVENING) for name in streams
    }
    shop = Shop(site(format), "airbyte", **streams)
    shop.parts["streams"] = [{"name": name, "mode": "upsert"} for name in streams]
    first: list[Any] = []
    second: list[Any] = []
    for name, (early, later, late) in moments.items():
        sent = [
            (1, 1, early),
            (2, "older", early),
            (3, "alone", early),
            (4, "newest", late),
            (5, "equal", later),
            (6, "no cursor", None),
            (7, "first of two", later),
            (7, "second of two", later),
        ]
        first += [[name, {"id": i, "n": n, "at": at}] for i, n, at in sent]
        second += [[name, {"id": i, "n": 7, "at": later}] for i in (2, 4, 5, 6)]
    shop.sends(*first)
    shop.sends(*second)

    done = shop.retries()
    assert tried(done) == (7 * len(streams), {})
    # 3 and 7 are new, 4 has the higher cursor; 2, 5, 6 and the first 7 are superseded
    for name in streams:
        assert shop.rows(name, "id", "n") == [
            (1, 1), (2, 7), (3, None), (4, None), (5, 7), (6, 7), (7, None),
        ]  # fmt: skip
    assert [each.superseded for each in done.streams] == [4] * len(streams)
    # an equal cursor that comes later
    shop.sends(*([name, {"id": 3, "n": 8, "at": at[0]}] for name, at in moments.items()))
    for name in streams:
        assert (3, 8) in shop.rows(name, "id", "n")


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l9_without_a_cursor_it_never_replaces(site: Make, format: str) -> None:
    items = stream({"id": INTEGER, "n": INTEGER}, ("id",), method="INCREMENTAL")
    shop = Shop(site(format), "singer", items=items)
    shop.parts["streams"] = [
        {"name": "items", "sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    ]
    shop.sends(
        ["items", {"id": 1, "n": "x"}], ["items", {"id": 2, "n": "y"}], ["items", {"id": 3, "n": 3}]
    )
    shop.sends(["items", {"id": 1, "n": 10}])
    assert tried(shop.retries()) == (2, {})
    assert shop.rows("items", "id", "n") == [(1, 10), (2, None), (3, 3)]


def test_what_cannot_be_known_stays_a_reject(site: Make) -> None:
    mark = MARKS["airbyte"]
    shop = Shop(
        site(),
        "airbyte",
        gone=stream({"id": INTEGER, "n": INTEGER, "at": TIME, mark: TIME}, ("id",), "at"),
        full=stream({"id": INTEGER, "n": INTEGER}, ("id",)),
        over=stream({"id": INTEGER, "n": INTEGER, "at": TIME}, ("id",), "at"),
        reset=stream({"id": INTEGER, "n": INTEGER, "at": TIME}, ("id",), "at"),
    )
    shop.parts["streams"] = [
        {"name": "gone", "mode": "upsert"},
        {"name": "full", "mode": "mirror"},
        {"name": "over", "mode": "upsert"},
        {"name": "reset", "mode": "incremental_append"},
    ]
    bad = {"n": "x", "at": MORNING}
    good = {"n": 1, "at": MORNING}
    shop.sends(
        *([name, {"id": 1, **bad}] for name in shop.streams),
        *([name, {"id": 2, **good}] for name in shop.streams),
        {"message": {"type": "RECORD", "record": {"stream": "over", "data": [1], "emitted_at": 1}}},
    )
    shop.sends(  # the rows of `over` are replaced, and it has a reject of these
        *([name, {"id": 2, **good}] for name in shop.streams),
        streams=[shop.parts["streams"][2]],
        status="succeeded",
    )
    done = shop.here.run(**{**shop.parts, "streams": [shop.parts["streams"][2]]}, recreate=True)
    assert done.status == "succeeded", done.error
    with shop.here.store() as store:
        assert store.generations(NAME)
    answer = shop.here.cli("state", "reset", NAME, "--stream", "reset")
    assert answer.code == 0, answer.err

    count, left = tried(shop.retries())
    assert (count, left[REMOVED], left[READ_IN_FULL], left[RESET]) == (0, 1, 1, 1)
    assert left[REPLACED] == 1 and left[NOT_WHOLE] == 1
    assert {r["retried"] for r in shop.here.rejects()} == {None}


def test_l8_what_a_failed_run_rejected_is_sent_again(site: Make) -> None:
    events = stream({"id": INTEGER, "n": INTEGER, "at": TIME}, (), "at")
    shop = Shop(site(), "airbyte", events=events)
    shop.parts["streams"] = [{"name": "events", "mode": "incremental_append"}]
    rows = [["events", {"id": i, "n": "x" if i > 1 else 1, "at": MORNING}] for i in range(4)]
    shop.sends(*rows, max_rejected=1, status="failed")
    assert tried(shop.retries()) == (0, {SENT_AGAIN: 2})
    shop.sends(*rows, strict=False)
    assert shop.rows("events", "id") == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(("protocol", "format"), [("airbyte", "delta"), ("singer", "parquet")])
def test_l8_a_reject_that_comes_in_each_run_counts_once(
    site: Make, protocol: str, format: str
) -> None:
    """A cursor may be inclusive: then a run without news has only the newest records again."""
    events = stream({"id": INTEGER, "n": INTEGER, "at": TIME}, (), "at")
    shop = Shop(site(format), protocol, events=events)
    shop.parts.update(streams=[{"name": "events", "mode": "incremental_append"}], max_rejected=1)
    good, bad, worse, late = (
        ["events", {"id": i, "n": n, "at": NOON}] for i, n in enumerate((1, "two", "three", 4))
    )

    def sends(*sent: Any, status: str) -> Ran:
        return shop.sends(*sent, status=status, max_rejected=shop.parts["max_rejected"])

    sends(bad, status="failed")  # no state was saved after it: it counts again
    sends(bad, status="failed")
    sends(good, bad, status="succeeded")
    for _ in range(2):
        quiet = sends(bad, status="succeeded")
        quiet.noted("events: 1 reject of earlier runs came again")
        assert quiet.report.streams[0].rejected == 1
    dry = shop.here.cli(
        "run", str(shop.here.write(**shop.parts, strict=True)), "--dry-run", "--json"
    )
    assert dry.code == 0 and "came again" in str(dry.json["notes"]), "as the run would"
    sends(bad, worse, status="failed")
    sends(bad, worse, late, status="succeeded").noted("1 reject of")
    assert shop.rows("events", "id") == [(0,), (3,)]
    assert shop.here.cli("state", "reset", NAME).code == 0
    sends(bad, status="failed")


def test_a_record_whose_transform_was_mended_is_tried_from_the_start(site: Make) -> None:
    events = stream({"id": INTEGER, "name": TEXT, "at": TIME}, ("id",), "at")
    shop = Shop(site(), "airbyte", events=events)
    shop.parts["streams"] = [{"name": "events", "mode": "incremental_append"}]
    upper = {"use": "transform-sql", "config": {"query": "SELECT id, upper(name) n, at FROM input"}}
    check: dict[str, Any] = {
        "use": "transform-validate", "config": {"rules": [{"assert_not_null": "n"}]}
    }  # fmt: skip
    shop.sends(
        ["events", {"id": 1, "name": "a", "at": MORNING}],
        ["events", {"id": 2, "name": None, "at": MORNING}],
        transforms=[upper, check],
        strict=False,
    )
    assert shop.rows("events", "id", "n") == [(1, "A")]
    lenient = {
        **upper,
        "config": {"query": "SELECT id, coalesce(upper(name), '-') n, at FROM input"},
    }
    assert tried(shop.retries(transforms=[lenient, check])) == (1, {})
    assert shop.rows("events", "id", "n") == [(1, "A"), (2, "-")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "places"),
    [("parquet", ("mid-part", "after-intent")), ("delta", ("after-seal", "after-commit"))],
)
def test_l3_exactly_once_across_kills(
    quiet: Site, tmp_path: Path, format: str, places: tuple[str, ...]
) -> None:
    """A retry is killed, and the one after it, which goes on with what the first left, too."""
    quiet.format = format
    events = stream({"id": INTEGER, "n": INTEGER, "at": TIME}, (), "at")
    shop = Shop(quiet, "airbyte", events=events)
    shop.parts["streams"] = [{"name": "events", "mode": "incremental_append"}]
    shop.offers(*(["events", {"id": i, "n": i if i < 3 else "x", "at": MORNING}] for i in range(9)))
    path = str(quiet.write(**{**shop.parts, "strict": True}))
    assert quiet.cli("run", path).code == 0
    quiet.write(**shop.parts)
    for place in places:
        once = {
            "PENSTOCK_FAILPOINT": f"{place}@program",
            "PENSTOCK_FAILPOINT_ONCE": str(tmp_path / place),
            "PENSTOCK_DAEMON": "0",
        }
        killed = quiet.cli("rejects", "retry", path, **once)
        assert killed.code < 0 and (tmp_path / place).exists(), killed.err
    again: Answer = quiet.cli("rejects", "retry", path, "--json")
    assert again.code == 0, again.err
    assert again.json["retried"]["left"] == []
    assert shop.rows("events", "id") == [(i,) for i in range(9)]
    assert quiet.cli("rejects", "retry", path, "--json").json["retried"] == {"tried": 0, "left": []}
    assert shop.rows("events", "id") == [(i,) for i in range(9)]

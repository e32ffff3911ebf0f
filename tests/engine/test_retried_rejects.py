"""`rejects retry`: each reject once, whatever is copied, shared or ended, and no row twice or
brought back (issue 40 part 3; L3, L8, L9). Under append a row that comes twice shows."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from quick_runs import NAME, Bench

from penstock.config.home import Home
from penstock.engine.inspect.runs import rejects
from penstock.engine.log.retries import ids_stored, stored_text
from penstock.engine.run.reject_retry import (
    OTHER_KEY,
    REMOVED,
    SENT_AGAIN,
    WAS_READ_IN_FULL,
    RetryRequest,
)
from penstock.model.report import Report
from penstock.store.open import open_store

pytestmark = pytest.mark.dear

# ``sent``: the rows of this run. ``marks``: the schema has the property that marks deletes.
SOURCE = """
properties = {name: {"type": ["null", "integer"]} for name in ("id", "part", "number", "at")}
if WORLD.get("marks"):
    properties["_ab_cdc_deleted_at"] = {"type": ["null", "string"]}
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": "rows", "json_schema": {"properties": properties}, "source_defined_cursor": True,
         "supported_sync_modes": ["incremental", "full_refresh"], "default_cursor_field": ["at"]}
    ]}})
else:
    for row in WORLD["sent"]:
        say({"type": "RECORD", "record": {"stream": "rows", "data": row, "emitted_at": 1}})
    say({"type": "STATE", "state": {"type": "STREAM", "stream": {
        "stream_descriptor": {"name": "rows"}, "stream_state": {"last": 1}}}})
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
        {"stream_descriptor": {"name": "rows"}, "status": "COMPLETE"}}})
"""
APPEND = {"mode": "incremental_append"}
GOOD, BAD = {"id": 1, "number": 1}, {"id": 2, "number": "two"}


class Shop:
    """A pipeline whose fix is to leave ``strict`` out."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.use = bench.connector(SOURCE, "airbyte")
        self.parts: dict[str, Any] = {"defaults": APPEND}

    def sends(self, *rows: dict[str, Any], status: str = "succeeded", **sections: Any) -> Report:
        marks = sections.pop("marks", False)
        self.bench.set(sent=rows, marks=marks)
        sections = {"max_rejected": "100%", "strict": True, **sections}
        report = self.bench.run(self.use, source=self.parts, **sections)
        assert report.status == status, report.error
        return report

    def retries(self, home: Home | None = None, **sections: Any) -> tuple[int, dict[str, int]]:
        report = self.bench.run(
            self.use, source=self.parts, retry=RetryRequest(), home=home, **sections
        )
        assert report.status == "succeeded" and report.retried is not None, report.error
        return report.retried.tried, {left.why: left.rejects for left in report.retried.left}

    @property
    def ids(self) -> list[int]:
        return self.bench.ids("rows")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(Bench(tmp_path, monkeypatch))


def rejects_folder(home: Home, run: str) -> Path:
    return home.run(run) / "rejects"


def test_l3_a_reject_of_which_two_runs_have_a_copy_is_tried_once(shop: Shop) -> None:
    one, other = shop.sends(GOOD, BAD).run, shop.sends({"id": 3, "number": 3}).run
    home = shop.bench.home
    shutil.copytree(rejects_folder(home, one), rejects_folder(home, other))
    store = open_store(home.state_url())
    assert [r["run"] for r in rejects(store, home, NAME)] == [other]
    store.close()
    assert shop.retries() == (1, {})
    assert shop.ids == [1, 2, 3]


def shared(shop: Shop, folder: Path) -> dict[str, Any]:
    """What two homes share in the pipeline file."""
    del shop
    return {"state": {"path": str(folder / "state.db")}, "log": {"path": str(folder / "log")}}


def test_l3_homes_that_share_a_log_try_a_reject_once(shop: Shop, tmp_path: Path) -> None:
    both, other = shared(shop, tmp_path), Home(tmp_path / "other")
    run = shop.sends(GOOD, BAD, **both).run
    shutil.copytree(rejects_folder(shop.bench.home, run), rejects_folder(other, run))
    assert shop.retries(**both) == (1, {})
    assert shop.retries(other, **both) == (0, {})
    assert shop.ids == [1, 2]
    store = open_store(other.state_url(shop_state(both)))
    (shown,) = rejects(store, other, NAME)
    store.close()
    assert shown["retried"] is not None


def shop_state(both: dict[str, Any]) -> Any:
    from penstock.config.sections import StateSettings

    return StateSettings(**both["state"])


def test_l3_keep_forgets_no_try_of_another_machine(shop: Shop, tmp_path: Path) -> None:
    both, other = shared(shop, tmp_path), Home(tmp_path / "other")
    run = shop.sends(GOOD, BAD, **both).run
    shutil.copytree(rejects_folder(shop.bench.home, run), rejects_folder(other, run))
    assert shop.retries(other, **both) == (1, {})
    time.sleep(1.2)
    for _ in range(2):  # ends the retry, which the other machine ran and which rejected nothing
        shop.sends({"id": 3, "number": 3}, **both, keep="1s")
    assert shop.retries(other, **both) == (0, {})
    assert shop.ids == [1, 2, 3, 3]


def test_l8_homes_that_share_a_log_know_what_is_sent_again(shop: Shop, tmp_path: Path) -> None:
    both, other = shared(shop, tmp_path), Home(tmp_path / "other")
    run = shop.sends(GOOD, BAD, max_rejected=0, status="failed", **both).run
    assert shop.retries(**both) == (0, {SENT_AGAIN: 1})
    copied = rejects_folder(other, run)
    shutil.copytree(rejects_folder(shop.bench.home, run), copied, ignore=lambda *_: ["x"])
    for mark in copied.glob("*.given-up"):
        mark.unlink()
    assert shop.retries(other, **both) == (0, {SENT_AGAIN: 1})
    shop.sends(GOOD, BAD, strict=False, **both)
    assert shop.ids == [1, 2]


def test_l8_what_a_full_read_rejected_is_not_appended_after_it(shop: Shop) -> None:
    shop.parts["defaults"] = {"mode": "mirror"}
    shop.sends(GOOD, BAD)
    shop.parts["defaults"] = APPEND  # the first increment begins at the start
    assert shop.retries() == (0, {WAS_READ_IN_FULL: 1})
    shop.sends(GOOD, BAD, strict=False)
    assert shop.retries() == (0, {WAS_READ_IN_FULL: 1})
    assert shop.ids.count(2) == 1


def keyed(*key: str) -> dict[str, Any]:
    return {"defaults": {"mode": "upsert", "primary_key": [[name] for name in key]}}


def test_l9_no_row_is_brought_back_under_another_key(shop: Shop) -> None:
    shop.parts = keyed("id")
    shop.sends({"id": 1, "part": 1, "number": "x", "at": 1})
    shop.sends({"id": 1, "part": 1, "number": 2, "at": 2})
    shop.sends({"id": 1, "part": 2, "number": 3, "at": 3})  # replaces the later row of (1, 1)
    shop.parts = keyed("id", "part")
    assert shop.retries() == (0, {OTHER_KEY: 1})
    rows = [r for kept in shop.bench.tables.rows.values() for r in kept]
    assert [(r["id"], r["part"]) for r in rows] == [(1, 2)]


def test_l9_a_key_that_is_part_of_the_one_before_is_tried(shop: Shop) -> None:
    shop.parts = keyed("id", "part")
    shop.sends({"id": 1, "part": 1, "number": "x", "at": 1})
    shop.parts = keyed("id")
    assert shop.retries() == (1, {})
    assert shop.ids == [1]


def test_l9_no_row_is_brought_back_once_deletes_were_marked(shop: Shop) -> None:
    shop.parts = keyed("id")
    gone = {"id": 1, "at": 2, "_ab_cdc_deleted_at": "2024-01-01T00:00:00Z"}
    shop.sends({"id": 1, "number": "x", "at": 1}, marks=True)
    shop.sends(gone, marks=True)
    shop.sends({"id": 3, "number": 3, "at": 3})  # the source declares its mark no more
    assert shop.retries() == (0, {REMOVED: 1})
    assert shop.ids == [3]


def test_ids_are_stored_in_few_characters() -> None:
    ids = [f"00000007-000001:{n}" for n in (3, 1, 2, 9)] + ["00000008-000002:4"]
    text = stored_text("RUN", ids)
    assert text == "RUN 00000007-000001:1-3,9 00000008-000002:4"
    assert ids_stored([text]) == dict.fromkeys(ids, "RUN")

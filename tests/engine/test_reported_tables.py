"""L8, L9: the reports' rows in the files of real tables of both formats, a stream each in one
pipeline. The right rows were decided before the runs."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench
from reported import Lake

from reported_connectors import GONE, INTEGER, MARKS, POSITIONS, TEXT, TIME, changes, stream

pytestmark = pytest.mark.dear

NUMBER = {"type": ["null", "number"]}
DAY = {"type": ["null", "string"], "format": "date"}
LONG = "k" * 40  # the statistics of files have 32 characters of a text
KEYS = [
    "a", "A", "a ", " a", "é", "e\u0301", "", "0", "00", "1.0", "\x00x", "\ufeffa", LONG,
    f"{LONG}\U0010ffff", f"{LONG}\U0001f600", f"{LONG[:32]}\uffff", f"{LONG[:32]}\U0001f600",
    f"{'z' * 31}\U0001f600x", "\U0001f600" * 33,
]  # fmt: skip


def keyed(**columns: Any) -> dict[str, Any]:
    return stream({"id": INTEGER, "v": TEXT, "n": INTEGER, **columns}, cursor="n")


@pytest.mark.parametrize(("protocol", "form"), [("airbyte", "parquet"), ("singer", "delta")])
def test_L8_rows_of_public_reports_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, form: str
) -> None:
    """airbytehq/airbyte#51559 (log), pingcap/tidb-binlog#1046 and pingcap/tidb#44203 (texts),
    airbytehq/airbyte#21330 (pair), MeltanoLabs/tap-dbt#213 (jobs), PostHog/posthog#75601 (dots: its
    key is `campaign.id`, `segments.date`), airbytehq/airbyte#33341 (numbers: fractions were one
    key), a cursor of numbers and times in text (mixed), a key of JSON (json)."""
    position, mark = POSITIONS[protocol], MARKS[protocol]
    dots = {"campaign.id": INTEGER, "campaign": {"type": "object", "properties": {"id": INTEGER}}}
    here = Lake(
        Bench(tmp_path, monkeypatch), monkeypatch, protocol, form,
        log=changes(protocol),
        texts=keyed(id=TEXT),
        pair=stream({"a": TEXT, "b": TEXT, "v": TEXT, "n": INTEGER}, ("a", "b"), "n"),
        jobs=stream({"id": INTEGER, "v": TEXT, "at": TIME}, cursor="at"),
        dots=stream(
            {**dots, "segments.date": DAY, "v": TEXT}, ("campaign.id", "segments.date"),
            "segments.date",
        ),
        numbers=keyed(id=NUMBER),
        mixed=stream({"id": INTEGER, "v": TEXT, "at": TEXT}, cursor="at"),
        json=keyed(id={}),
    )  # fmt: skip

    def log(id: int, v: str | None, at: int) -> list[Any]:
        return ["log", {"id": id, position: at, **({"v": v} if v else {mark: GONE})}]

    def row(name: str, id: Any, v: str, n: int) -> list[Any]:
        return [name, {"id": id, "v": v, "n": n}]

    def pair(a: str, b: str, v: str, n: int) -> list[Any]:
        return ["pair", {"a": a, "b": b, "v": v, "n": n}]

    def at(name: str, id: int, v: str, at: str | None) -> list[Any]:
        return [name, {"id": id, "v": v, "at": at}]

    def spend(id: int, day: str, v: str) -> list[Any]:
        inside = {"campaign": {"id": 7}, "segments.date": day}
        return ["dots", {"campaign.id": id, **inside, "v": v}]

    year = "2024-01-01T00:00:00Z"
    here.sends(
        *(log(i, "old", 172674661100006716 + i) for i in range(4)),
        *(row("texts", key, "old", 1) for key in KEYS),
        pair("x", "y", "old", 1), pair("y", "x", "old", 1), pair("", "x", "old", 1),
        at("jobs", 1, "runs", None), at("jobs", 2, "runs", None),
        spend(1, "2024-01-01", "old"), spend(2, "2024-01-01", "old"),
        *(row("numbers", key, "old", 1) for key in (1, 1.5, 0.1, 2**53 + 1)),
        at("mixed", 1, "a", year), at("mixed", 2, "a", "5"), at("mixed", 3, "a", None),
        row("json", {"k": "é"}, "old", 1), row("json", "7", "old", 1), row("json", 7, "old", 1),
    )  # fmt: skip
    here.streams["pair"]["key"].reverse()
    here.sends(
        log(1, "new", 5), log(2, None, 6), log(2, "again", 6), log(3, None, 6),
        *(row("texts", key, "new", 2) for key in KEYS[::2]),
        pair("x", "y", "new", 2), pair("", "x", "new", 2),
        at("jobs", 1, "done", year), at("jobs", 2, "done", year), at("jobs", 2, "again", None),
        spend(1, "2024-01-01", "new"), spend(1, "2024-01-02", "new"),
        *(row("numbers", key, "new", 2) for key in ("1.0", "1.50", 1e-1, 2**53)),
        at("mixed", 1, "b", "5"), at("mixed", 2, "b", "4"), at("mixed", 3, "b", "1"),
        row("json", {"k": "é"}, "new", 2), row("json", 7, "new", 2),
    )  # fmt: skip
    here.sends(at("jobs", 1, "again", None), at("mixed", 3, "late", "0"), log(0, "last", 1))

    found = {name: here.values("id", "v", table=name) for name in here.streams}
    assert found["log"] == [(0, "last"), (1, "new"), (2, "again")]
    texts = [(key, "old" if i % 2 else "new") for i, key in enumerate(KEYS)]
    assert found["texts"] == sorted(texts, key=repr)
    assert here.values("a", "b", "v", table="pair") == [
        ("", "x", "new"), ("x", "y", "new"), ("y", "x", "old")]  # fmt: skip
    assert found["jobs"] == [(1, "again"), (2, "again")]
    spent = ((r["campaign.id"], str(r["segments.date"]), r["v"]) for r in here.rows("dots"))
    assert sorted(spent) == [
        (1, "2024-01-01", "new"), (1, "2024-01-02", "new"), (2, "2024-01-01", "old")]  # fmt: skip
    assert sorted(found["numbers"]) == [
        (Decimal("0.1"), "new"), (1, "new"), (Decimal("1.5"), "new"), (2**53, "new"),
        (2**53 + 1, "old")]  # fmt: skip
    assert found["mixed"] == [(1, "b"), (2, "a"), (3, "b")]
    assert found["json"] == [('"7"', "old"), ("7", "new"), ('{"k":"é"}', "new")]

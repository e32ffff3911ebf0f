"""L8, L9: rows that were lost, frozen or doubled in public reports about keys, cursors and names.
The connectors are written from the reports; the right rows were decided before the runs."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench
from reported import Reported

from reported_connectors import GONE, INTEGER, MARKS, TEXT, TIME, stream

pytestmark = pytest.mark.dear

BOTH = pytest.mark.parametrize("protocol", ["airbyte", "singer"])


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def keyed(**columns: Any) -> dict[str, Any]:
    return stream({"id": INTEGER, "v": TEXT, "n": INTEGER, **columns}, cursor="n")


def row(id: Any, v: str, n: int, **more: Any) -> list[Any]:
    return ["t", {"id": id, "v": v, "n": n, **more}]


@pytest.mark.parametrize("protocol", ["singer"])
def test_l9_a_key_of_json_is_one_however_the_connector_writes_it(
    bench: Bench, protocol: str
) -> None:
    """A newer version of a tap may write JSON without spaces and escapes (a faster encoder)."""
    here = Reported(bench, protocol, t=keyed(id={}))
    key = {"$oid": "café/é", "n": 1}
    here.sends(row(key, "old", 1), row("café/é", "old", 1))
    program = here.script.read_text()
    for number, text in enumerate(
        (
            "json.dumps(message, ensure_ascii=False, separators=(',', ':'))",
            "json.dumps(message).replace('/', chr(92) + '/')",
        ),
        2,
    ):
        here.script.write_text(program.replace("json.dumps(message)", text, 1))
        here.sends(row(key, f"{number}", number), row("café/é", f"{number}", number))
    assert here.values("v") == [("3",), ("3",)]


def test_a_key_that_the_source_declares_wrongly_can_be_named(bench: Bench) -> None:
    """airbytehq/airbyte#48394: a source gave the columns of a key as the path of one column. Rows
    came twice, and the key that the note of it asks for was refused."""
    of = stream({"id": INTEGER, "kind": TEXT, "v": TEXT, "n": INTEGER}, [("id", "kind")], "n")
    here = Reported(bench, "airbyte", t=of)
    chosen = {"name": "t", "mode": "upsert", "sync_mode": "incremental"}
    source = {"streams": [{**chosen, "primary_key": ["id", "kind"]}]}
    for v in ("old", "new"):
        sent = (["t", {"id": 1, "kind": kind, "v": v, "n": 1}] for kind in "ab")
        here.sends(*sent, source=source)
    assert here.values("id", "kind", "v") == [(1, "a", "new"), (1, "b", "new")]
    of["key"] = [["id"], ["kind"]]  # mended at the source
    here.sends(["t", {"id": 1, "kind": "a", "v": "last", "n": 2}], source={"streams": [chosen]})
    assert here.values("id", "kind", "v") == [(1, "a", "last"), (1, "b", "new")]


@BOTH
def test_l9_a_row_without_a_part_of_its_key_is_a_reject_each_time(
    bench: Bench, protocol: str
) -> None:
    """airbytehq/airbyte#81634, PostHog/posthog#75601: rows of reports have no device; each run
    added them once more. They are no rows here, and each is counted."""
    of = stream({"ad": INTEGER, "device": TEXT, "v": TEXT, "n": INTEGER}, ("ad", "device"), "n")
    here = Reported(bench, protocol, t=of)
    sent = [
        ["t", {"ad": 1, "device": "phone", "v": "a", "n": 1}],
        ["t", {"ad": 1, "device": None, "v": "b", "n": 1}],
        ["t", {"ad": 1, "v": "c", "n": 1}],
    ]
    for _ in range(2):
        report = here.sends(*sent)
        assert (report.streams[0].read, report.streams[0].rejected) == (3, 2)
    assert here.values("ad", "device", "v") == [(1, "phone", "a")]


@BOTH
def test_l9_a_key_that_becomes_text_in_the_middle_of_a_run_stays_one(
    bench: Bench, protocol: str
) -> None:
    """A table of whole numbers: what is none is a reject; 7 is one key under either declaration."""
    here = Reported(bench, protocol, t=keyed())
    here.sends(row(7, "old", 1), row(8, "old", 1), row(9007199254740993, "old", 1))
    text = {**keyed(id=TEXT)["schema"]}
    if protocol == "singer":
        schema = {"type": "SCHEMA", "stream": "t", "schema": text, "key_properties": ["id"]}
        before = [row(8, "new", 2), {"state": 1}, {"message": schema}]
    else:
        here.streams["t"]["schema"] = text
        before = [row("8", "new", 2)]
    odd = ["007", "8a", " 8", ""]
    report = here.sends(
        *before, row("7", "new", 2), row("9007199254740993", "new", 2),
        *(row(key, "odd", 2) for key in odd),
    )  # fmt: skip
    assert here.values("id", "v") == [(7, "new"), (8, "new"), (9007199254740993, "new")]
    assert report.streams[0].rejected == len(odd)


@BOTH
def test_L8_a_cursor_that_is_null_stops_no_update(bench: Bench, protocol: str) -> None:
    """MeltanoLabs/tap-dbt#213, meltano/sdk#1714: `finished_at` is null while a job runs, and again
    when it is started anew. airbytehq/airbyte#4802: both rows were active."""
    of = stream({"id": INTEGER, "v": TEXT, "finished_at": TIME}, cursor="finished_at")
    here = Reported(bench, protocol, t=of)

    def job(id: int, v: str, at: str | None) -> list[Any]:
        return ["t", {"id": id, "v": v, "finished_at": at}]

    done = "2024-01-01T00:00:00Z"
    here.sends(job(1, "runs", None), job(2, "runs", None))
    here.sends(job(1, "done", done), job(2, "done", done), job(2, "again", None))
    assert here.values("id", "v") == [(1, "done"), (2, "again")]
    here.sends(job(1, "again", None), job(2, "done", "2023-12-31T00:00:00Z"))
    assert here.values("id", "v") == [(1, "again"), (2, "done")]


@pytest.mark.parametrize("protocol", ["airbyte"])
def test_cursor_order_text_and_nulls(bench: Bench, protocol: str) -> None:
    """Text by its bytes; between a null and text, and between nulls, the later row."""
    here = Reported(bench, protocol, t=stream({"id": INTEGER, "v": TEXT, "at": TEXT}, cursor="at"))
    how = {"source": {"streams": [{"name": "t", "mode": "upsert", "cursor_order": "text"}]}}
    how["source"]["streams"][0]["sync_mode"] = "incremental"

    def put(*rows: tuple[int, str | None]) -> list[tuple[Any, ...]]:
        here.sends(*(["t", {"id": i, "v": repr(at), "at": at}] for i, at in rows), **how)
        return here.values("id", "v")

    assert put(
        (1, "b"), (1, "a"), (2, "x"), (2, None), (3, None), (3, "9"), (3, "10"), (4, ""), (4, " "),
        (5, "Z"), (5, "é"), (5, "z"),
    ) == [(1, "'b'"), (2, "None"), (3, "'9'"), (4, "' '"), (5, "'é'")]  # fmt: skip
    assert put((1, None), (2, "a"), (3, "8"))[:3] == [(1, "None"), (2, "'a'"), (3, "'9'")]
    assert put((1, "a"), (2, "0"))[:2] == [(1, "'a'"), (2, "'a'")]


@BOTH
def test_mixed_cursors_soft_deletes_and_a_refresh_that_goes_on(bench: Bench, protocol: str) -> None:
    """Times, numbers, dates and nulls as cursors; deletes with and without one; the refresh fails
    in its middle. What its last state covers is kept, the rest is read again."""
    mark = MARKS[protocol]
    of = stream({"id": INTEGER, "v": TEXT, "at": TEXT, mark: TIME}, cursor="at")
    here = Reported(bench, protocol, t=of)
    soft = {"destination": {"use": f"parquet:{bench.folder / 'lake'}", "deletes": "soft"}}

    def put(id: int, v: str | None, at: str | None, *, gone: bool = False) -> list[Any]:
        return ["t", {"id": id, "at": at, mark: GONE} if gone else {"id": id, "v": v, "at": at}]

    def table() -> list[tuple[Any, ...]]:
        rows = sorted(here.rows(), key=lambda r: r["id"])
        return [(r["id"], r["v"], r["at"], r[mark] is not None) for r in rows]

    first = "2024-01-01T00:00:00Z"
    here.sends(put(1, "a", first), put(2, "a", first), **soft)
    here.sends(
        put(1, "b", "1709251200"), put(1, None, None, gone=True),  # epoch seconds; a bare delete
        put(2, None, None, gone=True), put(2, "c", "5"), **soft,
    )  # fmt: skip
    now = [(1, "b", "1709251200", True), (2, "c", "5", False)]
    assert table() == now
    failed = here.send(
        put(1, "r1", "2024-05-01T00:00:00Z"), put(3, "r1", "7"), {"state": 5},
        put(2, "not covered", "8"), {"exit": 1}, recreate=True, **soft,
    )  # fmt: skip
    assert failed.exit_code != 0 and table() == now
    here.sends(
        put(3, None, None, gone=True), put(1, "r2", "6"), put(1, None, "2024-05-02", gone=True),
        put(2, "r2", None), **soft,
    )  # fmt: skip
    assert table() == [(1, "r2", "2024-05-02", True), (2, "r2", None, False), (3, "r1", "7", True)]
    here.sends(put(3, "older", "1"), put(1, "back", "2024-05-01T00:00:00"), **soft)
    assert table()[0] == (1, "back", "2024-05-01T00:00:00", False)
    assert table()[2] == (3, "r1", "7", True), "1 is lower than 7: the delete is newer"


@BOTH
def test_names_that_are_cleaned_alike_on_different_days(bench: Bench, protocol: str) -> None:
    """dlt-hub/dlt#423 and #3090: two names became one, and one value was lost, at once or in the
    next run. At the top, in an object and in a list; no value meets another's."""

    def fields(*names: str) -> dict[str, Any]:
        return dict.fromkeys(names, TEXT)

    def objects(*names: str) -> dict[str, Any]:
        return {"type": ["null", "object"], "properties": fields(*names)}

    here = Reported(bench, protocol)
    places = dict[tuple[int, str], set[str]]()
    days = ["a b"], ["a_b"], ["a b", "a_b"], ["a,b"], ["a_b", "a,b", "a b"]
    for day, names in enumerate(days, 1):
        items = {"type": ["null", "array"], "items": objects(*names)}
        here.streams["t"] = keyed(o=objects(*names), l=items, **fields(*names))
        values = {name: name for name in names}
        here.sends(row(day, "", day, o=values, l=[values], **values))
        (found,) = [r for r in here.rows() if r["id"] == day]
        for level, columns in enumerate((found, found["o"], found["l"][0])):
            for column, value in columns.items():
                if column.startswith("a_b") and value is not None:
                    places.setdefault((level, value), set()).add(column)
    assert len(places) == 9 and all(len(columns) == 1 for columns in places.values()), places
    assert len({(level, *columns) for (level, _), columns in places.items()}) == 9, places

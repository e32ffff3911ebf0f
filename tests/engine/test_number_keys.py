"""L9 from run to run: the type in which a table keeps a stream's keys apart is kept, whatever mode,
declaration or `types` come later."""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.tables.contract import TableName

# Records are texts of JSON, since a number has as many digits as its author wrote.
TAP = """
KEY = WORLD["key"]
inside = {"type": "object", "properties": {"n": KEY}}
schema = {"type": "object", "properties": {"id": KEY, "o": inside, "v": {"type": "integer"}}}
stream = {"tap_stream_id": "t", "stream": "t", "schema": schema, "key_properties": WORLD["keys"]}
if "--discover" in sys.argv:
    say({"streams": [stream]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", **stream})
for text in WORLD["records"]:
    print('{"type": "RECORD", "stream": "t", "record": ' + text + "}")
say({"type": "STATE", "value": {"bookmarks": {"t": {"at": WORLD["records"][-1]}}}})
"""
NUMBER, INTEGER = {"type": ["null", "number"]}, {"type": ["null", "integer"]}
TEXT: dict[str, Any] = {"type": ["null", "string"]}
AS_TEXT = {"types": {"id": "string"}}


class Sender:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.bench, self.count = Bench(folder, patch), 0

    def run(
        self, *keys: str, key: Any = NUMBER, inside: bool = False, mode: str = "upsert",
        recreate: bool = False, parts: dict[str, Any] | None = None, **settings: Any,
    ) -> Any:  # fmt: skip
        """Sends a record for each key, which is JSON text; ``v`` numbers them over all runs."""
        records: list[str] = []
        for text in keys:
            self.count += 1
            held = f'"o":{{"n":{text}}}' if inside else f'"id":{text}'
            records.append(f'{{{held},"v":{self.count}}}')
        self.bench.set(key=key, keys=[] if inside else ["id"], records=records)
        defaults: dict[str, Any] = {"sync_mode": "incremental", "mode": mode, **settings}
        if inside:
            defaults["primary_key"] = [["o", "n"]]
        use = self.bench.connector(TAP)
        report = self.bench.run(
            use, source={"defaults": defaults}, recreate=recreate, **(parts or {})
        )
        assert report.status == "succeeded", report.error
        return report

    def rows(self) -> dict[str, int]:
        rows = self.bench.tables.rows[TableName(None, "t")]
        keys = [r["o"]["n"] if r.get("o") else r["id"] for r in rows]
        found = [(f"{key}".rstrip("0").rstrip(".") if "." in f"{key}" else f"{key}", r["v"])
                 for key, r in zip(keys, rows, strict=True)]  # fmt: skip
        assert len(dict(found)) == len(found), found
        return dict(found)


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sender:
    return Sender(tmp_path, monkeypatch)


@pytest.mark.parametrize(("declared", "inside"), [(NUMBER, False), (INTEGER, True)])
def test_l9_a_key_of_numbers_as_text_is_one_key_in_every_spelling_and_from_run_to_run(
    sender: Sender, declared: Any, inside: bool
) -> None:
    text: Any = {"types": {"o": "struct<n: string>"} if inside else {"id": "string"}}
    report = sender.run(
        "1", "1.0", "1e0", "1e30", "0.10000000000000000555", '"A7"', key=declared, inside=inside,
        **text,
    )  # fmt: skip
    found = {"1": 3, "1" + "0" * 30: 4, "0.10000000000000000555": 5, "A7": 6}
    assert sender.rows() == found and report.streams[0].rejected == 0
    sender.run("1.00", "10e29", key=declared, inside=inside, **text)
    found |= {"1": 7, "1" + "0" * 30: 8}
    assert sender.rows() == found
    for more in (text, {}):  # whatever is declared, the column goes on with its numbers
        for key in (TEXT, declared):
            sender.run("1.0", '"A7"', key=key, inside=inside, **more)
            found |= {"1": sender.count - 1, "A7": sender.count}
            assert sender.rows() == found
    sender.run("7.0", key=declared, inside=inside, mode="append", **text)
    sender.run("7e0", "1.0", key=declared, inside=inside, **text)
    assert sender.rows() == found | {"7": sender.count - 1, "1": sender.count}


def test_l9_a_table_whose_key_is_text_as_sent_goes_on_so(sender: Sender) -> None:
    """As the tables are that the code before made: with numbers in one form a key would be doubled.
    Its source declared text then."""
    sender.run('"1.0"', '"2"', key=TEXT)
    sender.run("1.0", "2.0", **AS_TEXT)
    rows = sender.bench.tables.rows[TableName(None, "t")]
    assert sorted((r["id"], r["v"]) for r in rows) == [("1.0", 3), ("2", 2), ("2.0", 4)]
    sender.run("1.0", recreate=True, **AS_TEXT)
    rows = sender.bench.tables.rows[TableName(None, "t")]
    assert [(r["id"], r["v"]) for r in rows] == [("1", 5)]


def test_l9_a_key_of_numbers_as_text_stays_one_key_where_a_transform_comes_later(
    sender: Sender,
) -> None:
    sender.run("1", "2.50", **AS_TEXT)
    query = "SELECT id, v + 100 AS v FROM input"
    later: Any = {"transforms": [{"use": "transform-sql", "config": {"query": query}}]}
    sender.run("1.0", "2.5", "3e0", parts=later, **AS_TEXT)
    assert sender.rows() == {"1": 103, "2.5": 104, "3": 105}


def test_l9_a_note_names_the_way_to_text_and_it_works(sender: Sender) -> None:
    report = sender.run("1e30", "1")
    assert report.streams[0].rejected == 1 and sender.rows() == {"1": 2}
    assert any("`types: { id: string }`" in note for note in report.notes), report.notes
    report = sender.run("1e30", "1", recreate=True, **AS_TEXT)
    assert report.streams[0].rejected == 0
    assert sender.rows() == {"1" + "0" * 30: 3, "1": 4}


def test_l9_keys_that_were_exact_stay_so_while_rows_are_appended(sender: Sender) -> None:
    """A double in their place would be widened into the table's column, and merged by later."""
    sender.run("9007199254740993", "9007199254740992")
    sender.run("9007199254740995", "1e30", mode="append")
    report = sender.run("9007199254740995.0", "9007199254740993", "9007199254740996")
    assert report.streams[0].rejected == 0
    rows = sender.bench.tables.rows[TableName(None, "t")]
    assert sorted((str(r["id"]).partition(".")[0], r["v"]) for r in rows) == [
        ("9007199254740992", 2), ("9007199254740993", 6), ("9007199254740995", 5),
        ("9007199254740996", 7), ("None", 4),
    ]  # fmt: skip


def test_l9_a_double_that_was_appended_to_rejects_keys_that_it_does_not_hold(
    sender: Sender,
) -> None:
    sender.run("9007199254740992", "0.1", mode="append")
    report = sender.run("9007199254740993", "0.10000000000000000555", "0.1", "1e0", "1.0")
    assert report.streams[0].rejected == 2
    assert sender.rows() == {"9007199254740992": 1, "0.1": 5, "1": 7}


def test_l9_a_decimal_that_becomes_a_double_at_the_source_is_noted_once(sender: Sender) -> None:
    cents = {"type": ["null", "number"], "multipleOf": 0.01}
    sender.run("1.5", key=cents, mode="append", inside=True)
    notes = [n for n in sender.run("2.5", mode="append", inside=True).notes if "double" in n]
    assert len(notes) == 1 and "o.n (decimal(38,2) until now)" in notes[0], notes
    report = sender.run("3.5", mode="append", inside=True)
    assert not [n for n in report.notes if "double" in n]


def test_l9_a_transform_that_mends_a_key_needs_its_text(sender: Sender) -> None:
    """As a number the text is gone before the transform, which would make one key of all such."""
    query = (
        "SELECT CASE WHEN id LIKE 'n/a%' THEN '-' || right(id, 1) ELSE id END AS id, v FROM input"
    )
    by_text = {"transforms": [{"use": "transform-sql", "config": {"query": query}}]}
    report = sender.run('"n/a 1"', "7", '"n/a 2"', key=INTEGER, parts=by_text, **AS_TEXT)
    assert report.streams[0].rejected == 0 and sender.rows() == {"-1": 1, "7": 2, "-2": 3}


def test_l9_a_key_that_is_lost_before_a_transform_is_a_reject(sender: Sender) -> None:
    query = "SELECT coalesce(id, -1) AS id, v FROM input"
    blind = {"transforms": [{"use": "transform-sql", "config": {"query": query}}]}
    report = sender.run('"n/a 1"', "7", '"n/a 2"', "null", key=INTEGER, parts=blind)
    assert report.streams[0].rejected == 2 and sender.rows() == {"7": 2, "-1": 4}

"""L8: a tap whose SCHEMA comes again with other ``key_properties`` while its rows are read.

Singer specification, SCHEMA: `key_properties` says which properties are the primary key; nothing
says that it comes once. Targets of the SDK merge the rows before a SCHEMA by the old key and those
after it by the new one.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from quick_runs import Bench, in_this_process

from penstock.engine.inspect import states
from penstock.engine.run import wiring
from penstock.engine.specs.feeder import PushJob
from penstock.engine.worker.feeder import run_push
from penstock.errors import ConfigError, Defect
from penstock.model.report import Report

pytestmark = pytest.mark.dear

STUBS = Path(__file__).parents[1] / "stubs"
TARGET, DESTINATION = STUBS / "stub_target.py", STUBS / "stub_destination.py"

# ``turns``: [key_properties, records, properties] in order; each ends with a state; no properties:
# all three. ``catalog``: its key there.
TAP = """
properties = {"id": {"type": "integer"}, "code": {"type": ["null", "integer"]},
              "text": {"type": "string"}}
def schema_of(names):
    known = {**properties, "more": {"type": ["null", "integer"]}}
    return {"type": "object", "properties": {name: known[name] for name in names}}
if "--discover" in sys.argv:
    about = {"table-key-properties": WORLD["catalog"]}
    say({"streams": [{"tap_stream_id": "sales", "stream": "sales", "schema": schema_of(properties),
        "metadata": [{"breadcrumb": [], "metadata": about}]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
for number, (keys, records, *names) in enumerate(WORLD["turns"], 1):
    names = names or list(properties)
    schema = schema_of(names)
    say({"type": "SCHEMA", "stream": "sales", "schema": schema, "key_properties": keys})
    for record in records:
        say({"type": "RECORD", "stream": "sales", "record": dict(zip(names, record))})
    say({"type": "STATE", "value": {"bookmarks": {"sales": {"number": number}}}})
"""

FIRST = [[1, 1, "a"], [2, None, "b"], [2, 1, "c"]]
THEN = [[4, 2, "e"], [5, 2, "f"], [5, 3, "g"], [5, 3, "h"]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def run(bench: Bench, *turns: Any, catalog: Any = None, **parts: Any) -> Report:
    bench.set(turns=turns, catalog=turns[0][0] if catalog is None else catalog)
    return bench.run(bench.connector(TAP), **parts)


def other_notes(report: Report) -> list[str]:
    """All but that of increments which are appended, as a plan without a key has them."""
    return [note for note in report.notes if not note.startswith("at-least-once: ")]


def of_sales(report: Report) -> str:
    """Its status; a stream of which the last read sent no SCHEMA is incomplete."""
    return next(s.status for s in report.streams if s.name == "sales")


def texts(bench: Bench) -> str:
    return "".join(bench.ids("sales", "text"))


def test_L8_another_key_holds_for_the_rows_after_it(bench: Bench) -> None:
    report = run(bench, (["id"], FIRST), (["id", "code"], THEN))
    assert report.status == "succeeded" and texts(bench) == "acefh"
    (note,) = report.notes
    assert "one row for each id until now and keeps one for each id, code from now on" in note
    assert report.streams[0].read == report.streams[0].committed == 7


def test_L8_a_key_in_another_order_is_the_same_key(bench: Bench) -> None:
    run(bench, (["id", "code"], FIRST))
    report = run(bench, (["code", "id"], THEN), (["id", "code"], [[4, 2, "i"]]))
    assert report.status == "succeeded" and not report.notes
    assert texts(bench) == "acfhi"


def test_a_column_whose_name_changes_by_case_is_another_one_and_noted(bench: Bench) -> None:
    """As between runs: its old column has no value from now on."""
    turns = (["id"], FIRST, "id", "code", "text"), (["id"], THEN, "id", "code", "Text")
    bench.set(turns=turns, catalog=["id"])
    tap = bench.connector(TAP.replace('"more":', '"Text": {"type": "string"}, "more":'))
    report = bench.run(tap)
    assert report.status == "succeeded"
    (note,) = report.notes
    assert "the column text is Text now, which is another column" in note
    assert not bench.run(tap).notes, "both are known"


def test_L8_a_key_that_the_first_schema_has_is_the_rows_own(bench: Bench) -> None:
    """Nothing changed, since no row had been read; but the plan knew no key, and said so."""
    report = run(bench, (["id"], FIRST), catalog=[])
    assert texts(bench) == "ac" and report.guarantee == "exactly-once"
    (note,) = report.notes  # and not that append keeps every row
    assert "named its primary key only when it was read" in note and "one row for each id" in note
    again = run(bench, (["id"], [[1, 1, "d"]]), catalog=[])
    assert texts(bench) == "cd" and again.guarantee == "exactly-once" and not again.notes


def test_L8_a_run_without_any_key_is_at_least_once(bench: Bench) -> None:
    report = run(bench, ([], FIRST), catalog=[])
    assert report.guarantee == "at-least-once" and texts(bench) == "abc"
    (note,) = report.notes
    assert note.startswith("at-least-once: sales")


def test_L8_a_stream_without_a_key_stays_appended_when_one_comes(bench: Bench) -> None:
    """As between runs: rows that were appended are not merged away."""
    report = run(bench, ([], FIRST), (["id"], THEN))
    assert report.status == "succeeded" and texts(bench) == "abcefgh"


def test_L8_a_stream_without_a_key_stays_appended_when_a_column_comes_after_the_key(
    bench: Bench,
) -> None:
    wide = ["id", "code", "text", "more"]
    report = run(bench, ([], FIRST), (["id"], THEN), (["id"], [[1, 1, "i", 1]], *wide))
    assert report.status == "succeeded" and texts(bench) == "abcefghi"
    assert not other_notes(report)


# One turn each time that it is read: [stream, key_properties, records]; ``marks``: the state then.
ONE_A_READ = """
import os
schema = {"type": "object", "properties": {"id": {"type": "integer"},
          "code": {"type": ["null", "integer"]}, "text": {"type": "string"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "schema": schema, "metadata": []}
                     for name in ("sales", "other")]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
reads = sys.argv[0] + ".reads"
done = os.path.getsize(reads) if os.path.exists(reads) else 0
open(reads, "a").write("x")
name, keys, records = WORLD["turns"][done]
say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": keys})
for record in records:
    record = dict(zip(schema["properties"], record))
    say({"type": "RECORD", "stream": name, "record": record})
say({"type": "STATE", "value": WORLD["marks"]})
"""


@pytest.fixture
def lost_once(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The jobs of lanes, of which the first one's process is lost after it has sealed."""
    jobs = list[bytes]()

    def submit(module: str, job: bytes) -> bytes:
        jobs.append(job)
        answer = in_this_process(module, job)
        if len(jobs) == 1:
            raise Defect("the process was killed", code="lane.lost")
        return answer

    monkeypatch.setattr(wiring, "on_spark", lambda *_: submit)
    return jobs


@pytest.mark.parametrize("marks", [{"bookmarks": {"sales": {"number": 1}}}, {"at": 7}, {}])
def test_L8_a_source_that_is_begun_again_with_a_key_keeps_the_rows_before(
    bench: Bench, lost_once: list[bytes], marks: dict[str, Any]
) -> None:
    """No earlier run knew the stream; it does not matter whether the state says that it has
    rows."""
    turns = ["sales", [], FIRST], ["sales", ["id"], [[2, 5, "x"], *THEN]]
    bench.set(turns=turns, marks=marks)
    report = bench.run(bench.connector(ONE_A_READ))
    assert of_sales(report) == "complete" and len(lost_once) == 2, report.error
    assert texts(bench) == "abcefghx"


@pytest.mark.parametrize("before", [["sales", [], []], ["other", [], FIRST]])
def test_L8_a_source_that_is_begun_again_without_rows_before_brings_its_own_key(
    bench: Bench, lost_once: list[bytes], before: list[Any]
) -> None:
    """A state that names a stream says nothing of rows."""
    marks = {"bookmarks": {"sales": {"number": 0}}, "currently_syncing": "sales"}
    bench.set(turns=[before, ["sales", ["id"], THEN]], marks=marks)
    report = bench.run(bench.connector(ONE_A_READ))
    assert of_sales(report) == "complete" and len(lost_once) == 2, report.error
    assert texts(bench) == "eh"


def test_L8_a_stream_that_is_new_beside_a_state_that_cannot_be_split_brings_its_own_key(
    bench: Bench,
) -> None:
    tap = bench.connector(ONE_A_READ)
    bench.set(turns=[["other", [], FIRST], ["sales", ["id"], THEN]], marks={"at": 7})
    for names in (["other"], ["other", "sales"]):
        report = bench.run(tap, source={"streams": [{"name": name} for name in names]})
        statuses = {s.name: s.status for s in report.streams}
        assert statuses[names[-1]] == "complete", report.error  # one of them is sent in a read
        with bench.known() as known:  # the user knows that it is right for the new stream too
            states.replace(known, states.export(known))
    assert texts(bench) == "eh"


# A column of its key has a type that the tap cannot send (tap-postgres: tstzrange, bytea).
UNSUPPORTED = """
room = {"room": {"type": "integer"}, "text": {"type": "string"}}
keys = ["room", "during"]
if "--discover" in sys.argv:
    if WORLD.get("undiscovered"): sys.exit("unrecognized arguments: --discover")
    about = {"table-key-properties": keys, "is-view": False}
    cannot = {"breadcrumb": ["properties", "during"], "metadata": {"inclusion": "unsupported"}}
    schema = {"type": "object", "properties": {**room, "during": {}}}
    say({"streams": [{"tap_stream_id": "sales", "stream": "sales", "schema": schema,
        "metadata": [{"breadcrumb": [], "metadata": about}, cannot]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
schema = {"type": "object", "properties": room}
say({"type": "SCHEMA", "stream": "sales", "schema": schema, "key_properties": keys})
for at, text in WORLD["rows"]:
    say({"type": "RECORD", "stream": "sales", "record": {"room": at, "text": text}})
say({"type": "STATE", "value": {"bookmarks": {"sales": {"at": 1}}}})
"""


@pytest.mark.parametrize("mode", ["incremental", "cdc"])
@pytest.mark.parametrize("undiscovered", [False, True])
def test_L8_rows_are_not_merged_by_a_part_of_their_key(
    bench: Bench, undiscovered: bool, mode: str
) -> None:
    tap = bench.connector(UNSUPPORTED)
    source = {} if undiscovered else {"defaults": {"sync_mode": mode, "cursor_field": "room"}}
    for rows in ([[1, "a"], [1, "b"]], [[1, "c"]]):
        bench.set(rows=rows, undiscovered=undiscovered)
        report = bench.run(tap, source=source)
        assert report.status == "succeeded", report.error
    assert texts(bench) == "abc"
    if not undiscovered:
        (planned,) = bench.plan(tap, source=source)["streams"]
        assert planned["destination_sync_mode"] == "append"
        with pytest.raises(ConfigError) as refused:
            bench.run(tap, source={"defaults": {**source["defaults"], "mode": "upsert"}})
        assert "during" in refused.value.problems[0]


def test_L8_a_key_that_is_gone_is_refused_and_what_was_read_is_kept(bench: Bench) -> None:
    report = run(bench, (["id"], FIRST), ([], THEN))
    assert report.error is not None and report.error["code"] == "config.primary_key_missing"
    assert texts(bench) == "ac"
    assert json.loads(bench.states()[0].blob) == {"bookmarks": {"sales": {"number": 1}}}


def test_L6_a_refresh_that_keeps_one_row_a_key_has_one_key(bench: Bench) -> None:
    """Rows without a value of the new key would be one row."""
    mode = {"defaults": {"mode": "full_refresh_overwrite_deduped"}}
    report = run(bench, (["id"], FIRST), (["code"], THEN), source=mode)
    assert report.error is not None and report.error["code"] == "schema.changed"
    assert "from id to code" in report.error["message"]
    assert texts(bench) == ""
    mirror = run(bench, (["id"], FIRST), (["code"], THEN), source={"defaults": {"mode": "mirror"}})
    assert mirror.status == "succeeded" and texts(bench) == "abcefgh"


def test_L6_a_refresh_under_the_users_key_does_not_mind_the_taps(bench: Bench) -> None:
    """As the error about another key advises."""
    mode = "full_refresh_overwrite_deduped"
    source = {"streams": [{"name": "sales", "mode": mode, "primary_key": [["id"]]}]}
    report = run(bench, (["id"], FIRST), (["code"], THEN), source=source)
    assert report.status == "succeeded" and texts(bench) == "aceh"
    assert not report.notes


@pytest.fixture
def feeding(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench that feeds destination connectors in this process."""

    def submit(module: str, job: bytes) -> bytes:
        if module == "penstock.engine.worker.lane":
            return in_this_process(module, job)
        return msgspec.json.encode(run_push(msgspec.json.decode(job, type=PushJob), stop))

    stop = threading.Event()
    monkeypatch.setattr(wiring, "on_spark", lambda *_: submit)


@pytest.mark.usefixtures("feeding")
@pytest.mark.parametrize("catalog", [["id"], []])
def test_L8_a_target_is_told_the_key_of_the_rows_that_it_gets(
    bench: Bench, catalog: list[str]
) -> None:
    save = bench.folder / "fed.jsonl"
    target = f"singer:{sys.executable} {TARGET} '{json.dumps({'save': str(save)})}'"
    report = run(
        bench, (["id"], FIRST), (["id", "code"], THEN), catalog=catalog, destination={"use": target}
    )
    assert report.status == "succeeded", report.error
    keys, fed = None, list[Any]()
    for line in save.read_text().splitlines():
        message = json.loads(line)
        keys = message["key_properties"] if message["type"] == "SCHEMA" else keys
        if message["type"] == "RECORD":
            fed.append((message["record"]["text"], keys))
    assert fed == [*((t, ["id"]) for t in "abc"), *((t, ["id", "code"]) for t in "efgh")]


@pytest.mark.usefixtures("feeding")
def test_L8_a_target_is_told_no_part_of_a_key(bench: Bench) -> None:
    """It would merge by it, or refuse records that lack the rest (Singer SDK)."""
    save = bench.folder / "fed.jsonl"
    target = f"singer:{sys.executable} {TARGET} '{json.dumps({'save': str(save)})}'"
    bench.set(rows=[[1, "a"], [1, "b"]])
    source = {"defaults": {"mode": "mirror"}}
    report = bench.run(bench.connector(UNSUPPORTED), source=source, destination={"use": target})
    assert report.status == "succeeded", report.error
    told = [json.loads(line) for line in save.read_text().splitlines()]
    assert [m["key_properties"] for m in told if m["type"] == "SCHEMA"] == [[]]


@pytest.mark.usefixtures("feeding")
@pytest.mark.parametrize("acks", ["echo", "late"])
def test_L8_a_destination_is_told_a_key_that_is_in_its_schema(bench: Bench, acks: str) -> None:
    """Airbyte's protocol, ConfiguredAirbyteStream: the paths of ``primary_key`` are fields of the
    stream. The newest schema is without the column of the older key."""
    sink = bench.folder / "sink.jsonl"
    to = {"use": f"airbyte:{sys.executable} {DESTINATION}"}
    turns = (["id"], FIRST), (["code"], [[1, "d"], [5, "e"]], "code", "text")
    report = run(bench, *turns, destination={**to, "config": {"sink": str(sink), "acks": acks}})
    assert report.status == "succeeded", report.error
    lines = [json.loads(line) for line in sink.read_text().splitlines()]
    told = [s for line in lines if "run" in line for s in line["run"]["catalog"]["streams"]]
    assert [s["primary_key"] for s in told] == [[["id"]], [["code"]]]
    assert ["id" in s["stream"]["json_schema"]["properties"] for s in told] == [True, False]
    assert [x["record"]["data"]["text"] for x in lines if x.get("type") == "RECORD"] == [*"abcde"]

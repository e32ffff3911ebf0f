"""Rows into destinations that are connectors: what comes back decides what is saved (issue 4,
"Destinations that are connectors"; L1, L6, L8).

A run here is at least once by its nature; what is held is that nothing is lost, that no state is
ahead of its ack, and that the report says what was sent again.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from connector_sites import Push, TapSite
from e2e_harness import Place, assert_adds_up, end_all
from pipelines import NAME, Ran, Site

from penstock.codec.exact_json import exact
from penstock.config.load import load_pipeline
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.inspect.waiting_rows import give_up, waiting, waiting_note
from penstock.engine.plan import lane_jobs
from penstock.engine.run import wiring
from penstock.engine.specs.lane import LaneBounds
from penstock.engine.specs.plan import SyncPlan
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakePush = Callable[..., Push]
FULL = list(range(1, 101))
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
ONE = {"streams": 1}


@pytest.fixture
def push(tmp_path: Path, shared_spark: "SparkSession") -> MakePush:
    """``push("airbyte", **options of the source)``; ``tap=True``: from the stub tap."""
    del shared_spark
    made: list[Push] = []

    def make(kind: str, *, tap: bool = False, **stub: Any) -> Push:
        site = (TapSite if tap else Site)(tmp_path / f"push-{len(made)}", **stub)
        made.append(Push(site, kind))
        return made[-1]

    return make


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state seals, and what is sealed is delivered while the source is still reading."""
    whole = wiring.sync_plan

    def sync_plan(*args: Any, **kw: Any) -> SyncPlan:
        told = {"load_bytes": 1, "load_seconds": 0.0, "scan_seconds": 0.1, "poll_seconds": 0.05}
        return msgspec.structs.replace(whole(*args, **kw), **told)

    bounds = partial(LaneBounds, part_bytes=1, seal_bytes=1, seal_seconds=0)
    monkeypatch.setattr(lane_jobs, "LaneBounds", bounds)
    monkeypatch.setattr(wiring, "sync_plan", sync_plan)


def halves(there: Push) -> dict[str, Any]:
    """A source of 100 records that goes on after the 50th, and the state behind it, only when the
    destination has started: so it is sent two states."""
    tap = isinstance(there.site, TapSite)

    def state(seq: int) -> dict[str, Any]:
        if tap:
            mark = {"replication_key": "seq", "replication_key_value": seq}
            return {"state": {"bookmarks": {"s0": mark}}}
        return {"state": {"stream": "s0", "state": {"seq": seq}}}

    steps: list[dict[str, Any]] = [
        {"records": {"stream": "s0", "from": 1, "to": 50}},
        state(50),
        {"wait_for": str(there.sink)},
        {"records": {"stream": "s0", "from": 51, "to": 100}},
        state(100),
    ]
    if not tap:
        steps.append({"status": {"stream": "s0", "status": "COMPLETE"}})
    return {"steps": steps}


def positions(there: Push) -> dict[str, int]:
    """stream -> what the saved state says of it."""
    if isinstance(there.site, TapSite):
        return there.site.bookmarks()
    return {name: state["seq"] for name, state in there.site.saved().items()}


def failed(ran: Ran, code: str) -> None:
    assert (ran.status, ran.exit_code, ran.error["code"]) == ("failed", 5, code), ran.error
    assert ran.error["hint"]


# -- what is sent


@pytest.mark.usefixtures("eager")
def test_an_airbyte_destination_is_told_everything_in_order(push: MakePush) -> None:
    """Its catalog, every row once, states after their rows, COMPLETE after the last of all; the
    second run brings only what is new."""
    there = push("airbyte")
    first = there.run()
    assert (first.status, first.exit_code, first.guarantee) == ("succeeded", 0, "at-least-once")
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert (first.stream("s0").target, first.stream("s0").sent_again) == ("s0", 0)
    assert first.report.time.destination_wait >= 0
    (heard,) = there.runs()
    assert heard.seqs("s0") == heard.seqs("s1") == FULL
    entry = heard.catalog["s0"]
    assert entry["destination_sync_mode"] == "append_dedup"
    assert (entry["generation_id"], entry["minimum_generation_id"]) == (0, 0)
    assert entry["primary_key"] == [["id"]]
    assert heard.records("s0")[2] == {
        "id": 3,
        "seq": 3,
        "name": heard.records("s0")[2]["name"],
        "amount": 21,
        "active": False,
        "updated_at": "2023-11-14T22:13:23Z",
        "note": "note 3",
    }
    assert heard.statuses() == {"s0": "COMPLETE", "s1": "COMPLETE"}
    _assert_states_follow_their_rows(heard.lines)
    assert positions(there) == {"s0": 100, "s1": 100}
    second = there.run({"records": 130})
    assert second.counts("s1") == ("complete", 30, 30, 0)
    assert there.runs()[1].seqs("s0") == list(range(101, 131))
    third = there.run({"records": 130})
    assert third.counts("s0") == ("complete", 0, 0, 0)
    assert positions(there) == {"s0": 130, "s1": 130}


def _assert_states_follow_their_rows(lines: list[dict[str, Any]]) -> None:
    seen: dict[str, int] = {}
    states: dict[str, list[int]] = {}
    done: set[str] = set()
    for line in lines:
        if line["type"] == "RECORD":
            stream = line["record"]["stream"]
            assert stream not in done, "a record after COMPLETE"
            seen[stream] = line["record"]["data"]["seq"]
        elif line["type"] == "STATE":
            body = line["state"]["stream"]
            name, seq = body["stream_descriptor"]["name"], body["stream_state"]["seq"]
            assert seen[name] == seq, "a state before its last row, or after a later one"
            before = states.setdefault(name, [0])[-1]
            assert line["state"]["sourceStats"]["recordCount"] == seq - before
            states[name].append(seq)
        else:
            done.add(line["trace"]["stream_status"]["stream_descriptor"]["name"])
    assert {name: seqs[-1] for name, seqs in states.items()} == {"s0": 100, "s1": 100}
    assert done == {"s0", "s1"}


@pytest.mark.usefixtures("eager")
def test_a_singer_target_is_fed_by_a_tap_and_by_an_airbyte_source(push: MakePush) -> None:
    """Upper case only, SCHEMA first and again where it changed, the tap's own states between; from
    another protocol a state of ours."""
    there = push("singer", tap=True, scenario="no_discovery", changed_schema=True, lower=True)
    first = there.run(told={"ack": "each"})
    assert first.counts("s0") == ("complete", 100, 100, 0), first.error
    heard = there.all()
    assert heard.seqs("s0") == heard.seqs("s1") == FULL
    assert {line["type"] for line in heard.lines} == {"SCHEMA", "RECORD", "STATE"}
    schemas = [s for s in heard.lines_of("SCHEMA") if s["stream"] == "s0"]
    assert [("extra" in s["schema"]["properties"]) for s in schemas] == [False, True]
    assert heard.lines.index(schemas[0]) < heard.lines.index(heard.lines_of("RECORD")[0])
    assert heard.records("s0")[50]["extra"] == "extra 51"
    assert set(heard.states()[0]["bookmarks"]["s0"]) == {"replication_key", "replication_key_value"}
    assert positions(there) == {"s0": 100, "s1": 100}
    assert there.run({"records": 110}, told={"ack": "end"}).counts("s0")[:3] == ("complete", 10, 10)

    other = push("singer")
    ran = other.run(told={"ack": "end"})
    assert ran.counts("s1") == ("complete", 100, 100, 0), ran.error
    assert other.all().seqs("s1") == FULL
    assert positions(other) == {"s0": 100, "s1": 100}
    assert other.site.described()["type"] == "STREAM"  # the source's own form is kept


def test_a_tap_feeds_an_airbyte_destination(push: MakePush) -> None:
    there = push("airbyte", tap=True)
    ran = there.run()
    assert ran.counts("s0") == ("complete", 100, 100, 0), ran.error
    (heard,) = there.runs()
    assert heard.seqs("s0") == heard.seqs("s1") == FULL
    assert heard.statuses() == {"s0": "COMPLETE", "s1": "COMPLETE"}
    assert {s["type"] for s in heard.states()} == {"GLOBAL"}
    assert positions(there) == {"s0": 100, "s1": 100}
    assert there.run({"records": 120}).counts("s1") == ("complete", 20, 20, 0)


def test_names_at_the_destination_and_states_under_the_sources(push: MakePush) -> None:
    """The namespace and prefix on the way out, reverted on states."""
    there = push("airbyte", namespace="shop", streams=1, records=10)
    section = {"namespace": "raw_${SOURCE_NAMESPACE}", "prefix": "crm_"}
    ran = there.run(destination=section)
    assert ran.status == "succeeded", ran.error
    (heard,) = there.runs()
    stream = heard.catalog["crm_s0"]["stream"]
    assert (stream["name"], stream["namespace"]) == ("crm_s0", "raw_shop")
    record = heard.lines_of("RECORD")[0]["record"]
    assert (record["stream"], record["namespace"]) == ("crm_s0", "raw_shop")
    descriptor = heard.states()[0]["stream"]["stream_descriptor"]
    assert descriptor == {"name": "crm_s0", "namespace": "raw_shop"}
    assert ran.stream("s0", "shop").target == "raw_shop.crm_s0"
    (saved,) = there.site.described()["streams"]
    assert (saved["namespace"], saved["name"], saved["state"]) == ("shop", "s0", {"seq": 10})
    there.run({"records": 15}, destination=section)
    (given,) = there.site.journal()[-1]["state"]
    assert given["stream"]["stream_descriptor"] == {"name": "s0", "namespace": "shop"}
    own = push("airbyte", namespace="shop", streams=1, records=5)
    own.run(destination={"namespace": "destination"})
    assert not own.runs()[0].catalog["s0"]["stream"].get("namespace")


def test_shared_states_are_matched_as_one(push: MakePush) -> None:
    for kind in ("GLOBAL", "LEGACY"):
        there = push("airbyte", state_type=kind)
        for told in ({}, {"acks": "mangled"}):
            before = 100 if told else 0
            ran = there.run({"records": before + 100}, told=told)
            assert ran.counts("s0") == ("complete", 100, 100, 0), ran.error
        described = there.site.described()
        assert described["type"] == kind
        if kind == "GLOBAL":
            assert positions(there) == {"s0": 200, "s1": 200}
        else:
            assert set(described["shared"]["positions"].values()) == {200}


# -- acks


@pytest.mark.usefixtures("eager")
def test_acks_that_count(push: MakePush) -> None:
    """Late, bare, with nulls, with ``global_``, twice; none at all where exit code 0 is
    trusted. Each run brings ten rows more."""
    there = push("airbyte", records=0, state_every=5)
    kinds = ["late", "bare", "nulls", "mangled", "changed", "twice"]
    for number, kind in enumerate([*kinds, "none"], 1):
        section = {"acks": "at_end"} if kind == "none" else {}
        ran = there.run({"records": number * 10}, told={"acks": kind}, destination=section)
        assert ran.counts("s1") == ("complete", 10, 10, 0), (kind, ran.error)
        assert positions(there) == {"s0": number * 10, "s1": number * 10}, kind
        noted = any("without their envelope" in text for text in ran.report.notes)
        assert noted == (kind in ("bare", "mangled", "changed")), (kind, ran.report.notes)
    assert there.all().seqs("s0") == list(range(1, 71))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("acks", "section", "code"),
    [
        ("none", {}, "destination.no_ack"),
        ("bare", {"acks": "strict"}, "destination.no_ack"),
        ("wrong_stream", {}, "destination.state_unknown"),
    ],
)
def test_l1_what_is_not_acked_moves_no_state_and_is_sent_again(
    push: MakePush, acks: str, section: dict[str, Any], code: str
) -> None:
    there = push("airbyte", **ONE)
    ran = there.run(halves(there), told={"acks": acks}, destination=section)
    failed(ran, code)
    assert ran.counts("s0") == ("incomplete", 100, 0, 0)
    assert positions(there) == {}
    if acks == "none":
        ran.noted("gave no state back", "at_end")
    again = there.run()
    assert (again.status, again.exit_code) == ("succeeded", 0), again.error
    assert again.stream("s0").sent_again == 100
    assert len(there.site.journal()) == 2
    assert there.site.journal()[-1]["state"] is not None, "what was sealed was read again"
    assert there.all().seqs("s0") == FULL * 2
    assert positions(there) == {"s0": 100}
    (told, before) = there.site.cli("runs", NAME, "--json").json
    assert [r["streams"][0]["sent_again"] for r in (told, before)] == [100, 0]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("told", [{"acks": "newest"}, {"acks": "final", "form": ["no_id"]}])
def test_l1_a_destination_that_gives_back_its_newest_state_only_goes_on(
    push: MakePush, told: dict[str, Any]
) -> None:
    """Its echo acks every state before it, so that the next run sends nothing again."""
    there = push("airbyte", **ONE)
    ran = there.run(halves(there), told=told)
    assert (ran.status, ran.exit_code) == ("succeeded", 0), ran.error
    assert positions(there) == {"s0": 100}
    again = there.run({"records": 110}, told=told)
    assert again.counts("s0") == ("complete", 10, 10, 0), again.error
    assert again.stream("s0").sent_again == 0
    assert there.all().seqs("s0") == list(range(1, 111))


@pytest.mark.usefixtures("eager")
def test_a_target_that_never_acks_and_one_that_merges_bookmarks(push: MakePush) -> None:
    there = push("singer", tap=True)
    failed(there.run(told={"ack": "none"}), "destination.no_ack")
    assert there.site.described()["streams"] == []
    again = there.run(told={"ack": "merge", "every": 30})
    assert (again.status, again.stream("s1").sent_again) == ("succeeded", 100), again.error
    assert positions(there) == {"s0": 100, "s1": 100}
    ended = there.run({"records": 110}, told={"ack": "none"}, destination={"acks": "at_end"})
    assert ended.counts("s0") == ("complete", 10, 10, 0), ended.error
    assert positions(there) == {"s0": 110, "s1": 110}


EXACT_TAP = """
import json, pathlib, sys
here = pathlib.Path(__file__).parent
if "--discover" in sys.argv or "--about" in sys.argv:
    schema = {"properties": {"id": {"type": "integer"}}}
    print(json.dumps({"streams": [{"stream": "s0", "tap_stream_id": "s0", "schema": schema}]}))
    sys.exit()
with open(here / "given", "a") as given:
    given.write(pathlib.Path(sys.argv[sys.argv.index("--state") + 1]).read_text().strip() + chr(10)
                if "--state" in sys.argv else "none" + chr(10))
n = len((here / "given").read_text().splitlines())
schema = {"properties": {"id": {"type": "integer"}}}
print(json.dumps({"type": "SCHEMA", "stream": "s0", "schema": schema, "key_properties": []}))
print(json.dumps({"type": "RECORD", "stream": "s0", "record": {"id": n}}))
print('{"type": "STATE", "value": ' + (here / "state").read_text() + '}')
"""


@pytest.mark.parametrize("ack", ["each", "end", "merge", "none"])
def test_l1_a_target_that_keeps_numbers_as_doubles_acks_and_no_digit_is_lost(
    push: MakePush, ack: str
) -> None:
    """The target of Python's own JSON: 0.10000000000000000555 comes back as 0.1. Each run ended
    with 5 and sent the rows again."""
    there = push("singer")
    folder = there.site.folder
    (folder / "tap.py").write_text(EXACT_TAP)
    numbers = ["0.10000000000000000555", "12345678901234567890.5", "1e3", "9007199254740993"]
    # One number is the bookmark; the others lie beside it. The second run is given them all.
    turned = [dict(zip("abcd", numbers[at:] + numbers[:at], strict=True)) for at in (0, 2)]
    for runs, marks in enumerate(turned, 1):
        at = ", ".join(f'"{name}": {number}' for name, number in marks.items())
        (folder / "state").write_text(f'{{"bookmarks": {{"s0": {{{at}}}}}}}')
        ran = there.run(
            use=f"singer:{sys.executable} {folder / 'tap.py'}",
            told={"ack": ack, "every": 1},
            destination={"acks": "at_end"} if ack == "none" else {},
        )
        assert (ran.status, ran.exit_code) == ("succeeded", 0), (marks, ran.error)
        assert ran.stream("s0").sent_again == 0
        assert len(there.all().records("s0")) == runs
        saved = there.site.cli("state", "export", NAME).out
        for name, number in marks.items():
            assert exact(saved)["bookmarks"]["s0"][name] == exact(number), saved
    (given,) = [g for g in (folder / "given").read_text().splitlines() if g != "none"]
    for name, number in turned[0].items():
        assert exact(given)["bookmarks"]["s0"][name] == exact(number), given


def steps(there: Push, rows: int, *states: int) -> dict[str, Any]:
    """A source of so many records and then these states. It says that its stream is complete."""
    tap = isinstance(there.site, TapSite)
    done: list[dict[str, Any]] = [{"schema": "s0"}] if tap else []
    if rows:
        done.append({"records": {"stream": "s0", "from": states[0] - rows + 1, "to": states[0]}})
    for seq in states:
        mark = {"replication_key": "seq", "replication_key_value": seq}
        own = {"bookmarks": {"s0": mark}}
        done.append({"state": own if tap else {"stream": "s0", "state": {"seq": seq}}})
    if not tap:
        done.append({"status": {"stream": "s0", "status": "COMPLETE"}})
    return {"steps": done}


ECHOES = [
    # The first state only, where no record came; the others give back none then.
    ("singer", {"ack": "flushed", "every": 10}, True),
    ("singer", {"ack": "with_records"}, False),
    ("airbyte", {"acks": "with_rows"}, True),
    ("airbyte", {"acks": "with_rows"}, False),
]


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(("kind", "told", "tap"), ECHOES)
def test_l1_states_that_cover_no_row_are_acked_by_exit_code_0(
    push: MakePush, kind: str, told: dict[str, Any], tap: bool
) -> None:
    """A run without new rows, and states after the last row, into destinations that give back no
    state where no record came, or only the first (PipelineWise's targets, DuckDB's)."""
    there = push(kind, tap=tap, **ONE)
    assert there.run(steps(there, 10, 10), told={}).status == "succeeded"
    idle = there.run(steps(there, 0, 15, 20), told=told)
    assert (idle.status, idle.exit_code) == ("succeeded", 0), idle.error
    assert idle.counts("s0") == ("complete", 0, 0, 0)
    assert positions(there) == {"s0": 20}
    after = there.run(steps(there, 10, 30, 35, 40), told=told)
    assert after.counts("s0") == ("complete", 10, 10, 0), after.error
    assert positions(there) == {"s0": 40}
    assert after.stream("s0").sent_again == 0
    assert there.all().seqs("s0") == [*range(1, 11), *range(21, 31)]
    dies = {"ack": "none", "acks": "none", "exit": 1, "exit_code": 1}
    failed(there.run(steps(there, 0, 50), told=dies), "destination.exited")
    assert positions(there) == {"s0": 40}


# -- destinations that fail


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("told", "code", "acked", "words"),
    [
        ({"exit_at": 60, "trace": "the disk is full"}, "destination.system_error", 50, "disk is"),
        ({"exit_at": 60}, "destination.exited", 50, "exit code 1"),
        ({"kill_at": 60}, "destination.exited", 50, "signal 9"),
        ({"exit_now": True}, "destination.ended_early", 0, ""),
        ({"close_at": 60, "close_sleep": 0.5}, "destination.ended_early", 50, ""),
        ({"hang_at": 60, "hang_stubborn": True}, "destination.heartbeat", 50, "5 s"),
    ],
)
def test_a_destination_that_dies_keeps_what_it_acked(
    push: MakePush, told: dict[str, Any], code: str, acked: int, words: str
) -> None:
    there = push("airbyte", **ONE)
    bounds = {"heartbeat": "5s", "stop": "1s"} if "hang_at" in told else {}
    ran = there.run(halves(there) if acked else {}, told=told, timeouts=bounds)
    failed(ran, code)
    assert words in ran.error["message"]
    assert positions(there) == ({"s0": acked} if acked else {})
    assert ran.stream("s0").committed == acked
    again = there.run()
    assert again.status == "succeeded", again.error
    # what it may have been given; one that read nothing was given a state's rows at the least
    least = 100 - acked if acked else 25
    assert least <= again.stream("s0").sent_again <= 100 - acked
    seqs = there.all().seqs("s0")
    assert set(seqs) == set(FULL)
    assert sorted(seqs[: len(seqs) - 100 + acked]) == list(range(1, len(seqs) - 100 + acked + 1))
    assert positions(there) == {"s0": 100}


@pytest.mark.usefixtures("eager")
def test_a_target_that_dies_keeps_what_it_acked(push: MakePush) -> None:
    """SCHEMA, 50 records and a STATE are 52 lines."""
    there = push("singer", tap=True, **ONE)
    last = {"after": 60, "say": "CRITICAL the disk is full", "code": 1}
    ran = there.run(halves(there), told={"ack": "each", **last})
    failed(ran, "destination.exited")
    assert "the disk is full" in ran.error["message"]
    assert positions(there) == {"s0": 50}
    killed = there.run(told={"ack": "each", "after": 30, "kill": True})
    failed(killed, "destination.exited")
    assert (killed.stream("s0").sent_again, positions(there)) == (50, {"s0": 50})
    closed = there.run(told={"ack": "each", "after": 1, "close": True}, timeouts={"stop": "1s"})
    assert (closed.status, closed.exit_code) == ("failed", 5), closed.error
    assert positions(there) == {"s0": 50}
    at_once = there.run(told={"ack": "none", "after": 1})
    assert (at_once.exit_code, positions(there)) == (5, {"s0": 50})
    done = there.run(told={"ack": "end"})
    assert (done.status, done.stream("s0").sent_again) == ("succeeded", 50), done.error
    assert positions(there) == {"s0": 100}
    assert set(there.all().seqs("s0")) == set(FULL)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("tap", [False, True])
def test_l5_rows_that_a_destination_never_takes_are_given_up_and_read_again(
    push: MakePush, tap: bool
) -> None:
    """It refuses what waits, whatever is changed in the file: the next run sends it as it is."""
    there = push("singer" if tap else "airbyte", tap=tap, **ONE)
    last = {"after": 60, "code": 1} if tap else {"exit_at": 60, "exit_code": 1}
    failed(there.run(halves(there), told={"ack": "each", **last}), "destination.exited")
    assert positions(there) == {"s0": 50}
    pipeline = load_pipeline(there.site.folder / "pipeline.yaml")
    with there.site.store() as store:
        (note,) = waiting_note(pipeline, store, there.site.home)
    assert "sealed 50 rows of s0" in note
    told = {"namespace": None, "name": "s0", "rows": 50}
    with open_known(NAME, there.site.home) as known:
        assert states.show(known)["waiting"] == [told]
    with open_known(pipeline, there.site.home) as known:
        assert give_up(pipeline, known) == [told]
        assert give_up(pipeline, known) == waiting(known) == []
    assert positions(there) == {"s0": 50}
    done = there.run(told={"ack": "each"})
    assert (done.status, done.stream("s0").sent_again) == ("succeeded", 0), done.error
    assert positions(there) == {"s0": 100} and {*there.runs()[-1].seqs("s0")} >= {*FULL[50:]}


# -- modes


def test_l6_complete_is_said_only_of_a_stream_that_was_read_to_its_end(push: MakePush) -> None:
    """A source that dies: the destination is sent nothing of the generation, nor COMPLETE."""
    there = push("airbyte", records=30)
    first = there.run(defaults=OVERWRITE)
    assert first.status == "succeeded", first.error
    entry = there.runs()[0].catalog["s0"]
    assert (entry["generation_id"], entry["minimum_generation_id"]) == (1, 1)
    assert entry["destination_sync_mode"] == "overwrite"
    ran = there.run({"scenario": "late_crash", "crash_after": 45}, defaults=OVERWRITE)
    assert (ran.status, ran.exit_code) == ("partial", 1), ran.error
    assert ran.stream("s1").status == "incomplete"
    heard = there.runs()[1]
    assert heard.statuses()["s0"] == "COMPLETE"
    assert heard.statuses().get("s1") != "COMPLETE"
    assert (len(heard.seqs("s0")), heard.seqs("s1")) == (30, [])
    again = there.run({"records": 20}, defaults=OVERWRITE)
    assert again.status == "succeeded", again.error
    assert there.runs()[-1].seqs("s1") == list(range(1, 21))
    assert there.runs()[-1].catalog["s1"]["minimum_generation_id"] == 3


def test_l6_an_incremental_source_that_dies_is_not_complete(push: MakePush) -> None:
    there = push("airbyte", records=40, state_every=10)
    ran = there.run({"scenario": "late_crash", "crash_after": 65})
    assert (ran.status, ran.exit_code) == ("partial", 1)
    statuses = there.runs()[0].statuses()
    assert (statuses["s0"], statuses.get("s1") == "COMPLETE") == ("COMPLETE", False)
    assert positions(there) == {"s0": 40, "s1": 20}
    assert there.all().seqs("s1") == list(range(1, 21))


def test_l6_versions_reach_a_target_that_takes_them(push: MakePush) -> None:
    about = {"about": {"name": "t", "capabilities": ["activate-version"], "settings": {}}}
    there = push("singer", tap=True, streams=1, records=20)
    ran = there.run(told={"ack": "end", **about}, defaults=OVERWRITE)
    assert ran.status == "succeeded", ran.error
    heard = there.all()
    assert {line["version"] for line in heard.lines_of("RECORD")} == {1}
    kinds = [line["type"] for line in heard.lines]
    assert kinds.index("ACTIVATE_VERSION") == len(kinds) - 1 - ("STATE" in kinds[-1:])
    dead = there.run(
        {"scenario": "late_crash", "crash_after": 10},
        told={"ack": "end", **about},
        defaults=OVERWRITE,
    )
    assert dead.exit_code == 4
    assert len(there.all().lines) == len(heard.lines), "half a generation was sent"


def test_a_mode_that_is_refused_is_a_problem_of_the_plan(push: MakePush) -> None:
    there = push("airbyte", streams=1)
    with pytest.raises(ConfigError) as refused:
        there.run(told={"modes": ["append"]}, defaults=OVERWRITE)
    assert refused.value.exit_code == 2
    (problem,) = refused.value.problems
    assert "does not support destination_sync_mode overwrite" in problem
    assert not there.site.journal() and not there.sink.exists()
    file = str(there.site.folder / "pipeline.yaml")
    plan = there.site.cli("plan", file, "--json")
    assert "does not support destination_sync_mode overwrite" in plan.out
    there.site.write(
        destination={"use": there.destination(), "config": {}},
        defaults={"destination_sync_mode": "append_dedup"},
    )
    allowed = there.site.cli("plan", file, "--json")
    assert allowed.code == 0, allowed.out
    assert allowed.json["guarantee"] == "at-least-once"
    assert any("at least once" in note for note in allowed.json["notes"])
    here = push("airbyte", streams=1)  # by default it is what the destination can (issue 9, A16)
    here.site.write(destination={"use": here.destination(modes=["append"]), "config": {}})
    (stream,) = here.site.cli("plan", str(here.site.folder / "pipeline.yaml"), "--json").json[
        "streams"
    ]
    assert stream["destination_sync_mode"] == "append"
    assert "does not support destination_sync_mode append_dedup" in stream["mode_reason"]


# -- around it


def test_a_dry_run_sends_nothing(push: MakePush) -> None:
    there = push("airbyte", streams=1)
    ran = there.run(dry_run=True)
    assert ran.status == "succeeded", ran.error
    assert ran.stream("s0").read == 100
    assert not there.sink.exists()
    assert positions(there) == {}


def test_l10_a_destinations_secrets_and_its_new_configuration(push: MakePush) -> None:
    """Its key is in no file of ours; what it changes by CONTROL is used by the next run."""
    there = push("airbyte", streams=1, records=5)
    secret = 'sEcr3t/"quoted"+x'
    config = {"api_key": secret, "refresh": 1}
    new = {"api_key": secret, "refresh": 2}
    ran = there.run(told={"control": new, "say": f"key {secret}", "log": secret}, config=config)
    assert ran.status == "succeeded", ran.error
    there.run({"records": 9}, config=config)
    assert [r.head["config"]["refresh"] for r in there.runs()] == [1, 2]
    said = [text for _, _, text in ran.heard.lines]
    assert any("key ****" in text for text in said)
    forms = (secret, json.dumps(secret)[1:-1])
    assert not any(form in text for text in said for form in forms)
    kept = {name for form in forms for name in there.site.files_with(form)}
    assert kept <= {"state.db"}


def test_both_jobs_share_one_slot(tmp_path: Path) -> None:
    """Nothing deadlocks where the source's job holds the only slot while loads are due."""
    sink = tmp_path / "sink.jsonl"
    site = Push(Site(tmp_path / "site"), "airbyte")
    site.sink = sink
    place = Place(
        tmp_path,
        "airbyte",
        config={"records": 200, "state_every": 20, "interleave": True, "delay": 0.005},
        to=site.destination(),
        told={
            "master": "local[1]",
            "bounds": {"part_bytes": 4_000, "seal_bytes": 8_000, "seal_seconds": 0.3},
            "load": {"max_pending_bytes": 1, "max_pending_time": 0.1},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        },
    )
    try:
        ended = place.run()
        assert ended.code == 0, ended.told[-3000:]
        assert_adds_up(ended)
        assert place.saved() == {"s0": 200, "s1": 200}
        assert not place.left_after(15)
    finally:
        end_all()
    heard = site.all()
    assert heard.seqs("s0") == heard.seqs("s1") == list(range(1, 201))

"""L1, L6: what a source's state says of streams that were not read is not theirs.

Taps and sources write positions of streams that they were not asked for: a tap's SDK finalizes the
bookmarks of every stream (https://github.com/meltano/sdk/issues/2350), and a GLOBAL state may name
all of them. The message is saved whole; a stream that is selected later goes on from the state of
its own last run, or begins at its start.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.engine.inspect.rewinds import rewind
from penstock.errors import ConfigError
from penstock.store.open import open_store
from penstock.store.schema import NAMES

pytestmark = pytest.mark.dear

# ``rows``: stream -> how many there are. Every state says of every stream that all was read.
# ``shape``: of the bookmarks; ``names``: how the state calls a stream; ``beside``: its other keys.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
SHAPE, NAMES = WORLD.get("shape", "mark"), WORLD.get("names", {})
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "schema": schema,
        "table_name": NAMES.get(name, name), "metadata":
        [{"breadcrumb": [], "metadata": {"replication-method": "INCREMENTAL",
          "replication-key": "id", "valid-replication-keys": ["id"]}}]}
        for name in WORLD["rows"]]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
asked = [one["tap_stream_id"] for one in given("--catalog")["streams"] if any(
    m["breadcrumb"] == [] and m["metadata"].get("selected") for m in one["metadata"])]
state = given("--state") or {}
def mark(number):
    return {"mark": {"replication_key": "id", "replication_key_value": number},
            "offset": {"offset": [number, {"deep": 0.1}]}, "bare": number, "flat": number,
            "partitions": {"partitions": [{"context": {}, "replication_key_value": number}]},
           }[SHAPE]
def number(mark):
    if SHAPE == "mark": return mark.get("replication_key_value", 0)
    if SHAPE == "offset": return mark["offset"][0]
    return mark["partitions"][0]["replication_key_value"] if SHAPE == "partitions" else mark
marks = state if SHAPE == "flat" else dict(state.get("bookmarks") or {})
for name in WORLD["rows"]:
    if name not in asked: continue
    say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": []})
    called = NAMES.get(name, name)
    at = number(marks[called]) if marks.get(called) else 0
    for one in range(at + 1, WORLD["rows"][name] + 1):
        say({"type": "RECORD", "stream": name, "record": {"id": one}})
    if WORLD.get("fails") == name: sys.exit(1)
    everything = {NAMES.get(n, n): mark(count) for n, count in WORLD["rows"].items()}
    value = everything if SHAPE == "flat" else {"bookmarks": everything, **WORLD.get("beside", {})}
    say({"type": "STATE", "value": value})
"""

# ``shared``: the GLOBAL state's shared part; ``kind``: the type of its states.
SOURCE = """
properties = {"id": {"type": "integer"}}
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": name, "json_schema": {"properties": properties},
         "supported_sync_modes": ["incremental", "full_refresh"], "source_defined_cursor": True,
         "default_cursor_field": ["id"]} for name in WORLD["rows"]]}})
else:
    asked = [one["stream"]["name"] for one in given("--catalog")["streams"]]
    old, last = given("--state") or [], {}
    if isinstance(old, dict): last = dict(old)
    for one in old if isinstance(old, list) else []:
        for e in one["global"]["stream_states"] if one["type"] == "GLOBAL" else [one["stream"]]:
            if e["stream_state"]: last[e["stream_descriptor"]["name"]] = e["stream_state"]["at"]
    for name in asked:
        for number in range(last.get(name, 0) + 1, WORLD["rows"][name] + 1):
            say({"type": "RECORD", "record": {"stream": name, "data": {"id": number},
                 "emitted_at": 1}})
        if WORLD.get("fails") == name: sys.exit(1)
    entries = [{"stream_descriptor": {"name": name}, "stream_state": {"at": count}}
               for name, count in WORLD["rows"].items()]
    if WORLD["kind"] == "GLOBAL":
        shared = {"shared_state": WORLD["shared"]} if WORLD.get("shared") else {}
        say({"type": "STATE", "state": {"type": "GLOBAL", "global":
            {"stream_states": entries, **shared}}})
    if WORLD["kind"] == "LEGACY":
        say({"type": "STATE", "state": {"data": WORLD["rows"]}})
    for entry in entries if WORLD["kind"] == "STREAM" else []:
        say({"type": "STATE", "state": {"type": "STREAM", "stream": entry}})
    for name in asked:
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
            {"stream_descriptor": {"name": name}, "status": "COMPLETE"}}})
"""

APPEND = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}
SHAPES = ["mark", "offset", "bare", "partitions"]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def upto(number: int) -> list[int]:
    return list(range(1, number + 1))


def sync(bench: Bench, source: str, *streams: str, **how: Any) -> Any:
    chosen = {"streams": list(streams)} if streams else {}
    report = bench.run(source, source={**APPEND, **chosen}, **how)
    assert report.exit_code == 0, report.error
    return report


def world(bench: Bench, repos: int, issues: int, **more: Any) -> None:
    bench.set(rows={"repos": repos, "issues": issues}, **more)


KINDS = [
    *(pytest.param(TAP, "singer", {"shape": s}, id=f"singer-{s}") for s in SHAPES),
    pytest.param(TAP, "singer", {"names": {"issues": "public_issues"}}, id="singer-other-name"),
    pytest.param(SOURCE, "airbyte", {"kind": "GLOBAL"}, id="airbyte-GLOBAL"),
    pytest.param(SOURCE, "airbyte", {"kind": "STREAM"}, id="airbyte-STREAM"),
]


@pytest.mark.parametrize(("program", "protocol", "more"), KINDS)
def test_L6_a_stream_that_was_never_read_begins_at_its_start(
    bench: Bench, program: str, protocol: str, more: dict[str, Any]
) -> None:
    source = bench.connector(program, protocol)
    world(bench, 2, 3, **more)
    sync(bench, source, "repos")
    sync(bench, source)
    assert (bench.ids("repos"), bench.ids("issues")) == (upto(2), upto(3))
    world(bench, 4, 4, **more)
    report = sync(bench, source)
    assert (bench.ids("repos"), bench.ids("issues")) == (upto(4), upto(4))
    assert not [note for note in report.notes if "did not read" in note]


@pytest.mark.parametrize(("program", "protocol", "more"), KINDS)
def test_L6_a_stream_goes_on_from_its_own_last_run(
    bench: Bench, program: str, protocol: str, more: dict[str, Any]
) -> None:
    """repos; both; repos; repos; both; then the other way round. No row is lost or comes twice."""
    source = bench.connector(program, protocol)
    for repos, issues, *chosen in (
        (1, 1, "repos"), (2, 2), (3, 5, "repos"), (4, 6, "repos"), (5, 7),
        (7, 8, "issues"), (8, 9, "issues"), (9, 10),
    ):  # fmt: skip
        world(bench, repos, issues, **more)
        sync(bench, source, *chosen)
        if "repos" in chosen or not chosen:
            assert bench.ids("repos") == upto(repos)
        if "issues" in chosen or not chosen:
            assert bench.ids("issues") == upto(issues)


@pytest.mark.parametrize("protocol", ["singer", "airbyte"])
def test_L1_the_message_is_saved_whole(bench: Bench, protocol: str) -> None:
    """A tap advances a parent that is not selected, for its children, and is given that again."""
    source = bench.connector(TAP if protocol == "singer" else SOURCE, protocol)
    world(bench, 2, 3, kind="GLOBAL")
    sync(bench, source, "repos")
    (saved,) = bench.states()
    value = json.loads(saved.blob)
    if protocol == "singer":
        assert value["bookmarks"]["issues"]["replication_key_value"] == 3
    else:
        assert [e["stream_state"] for e in value["global"]["stream_states"]] == [
            {"at": 2}, {"at": 3},
        ]  # fmt: skip


def test_L6_a_shared_position_passes_over_the_stream_that_was_not_read(bench: Bench) -> None:
    """What the log said of it is gone by: it is read from the start, and no other stream is."""
    source = bench.connector(SOURCE, "airbyte")
    more = {"kind": "GLOBAL", "shared": {"lsn": 7}}
    for repos, issues, *chosen in ((2, 3), (4, 5, "repos"), (5, 6)):
        world(bench, repos, issues, **more)
        sync(bench, source, *chosen)
    assert bench.ids("repos") == upto(5)
    assert bench.ids("issues") == sorted([*upto(3), *upto(6)])


@pytest.mark.parametrize("before", ["never read", "read before"])
@pytest.mark.parametrize(
    ("program", "protocol", "more"),
    [
        (TAP, "singer", {"shape": "flat"}),
        (TAP, "singer", {"beside": {"lsn": 7}}),
        (SOURCE, "airbyte", {"kind": "LEGACY"}),
    ],
    ids=["singer-flat", "singer-beside", "airbyte-LEGACY"],
)
def test_L6_a_state_that_cannot_be_taken_apart_is_refused_or_read_anew(
    bench: Bench, program: str, protocol: str, more: dict[str, Any], before: str
) -> None:
    source = bench.connector(program, protocol)
    world(bench, 1, 1, **more)
    if before == "read before":
        sync(bench, source)
    world(bench, 2, 3, **more)
    sync(bench, source, "repos")
    world(bench, 3, 4, **more)
    if "beside" in more:  # its bookmark can be told apart, what is beside it says nothing of it
        sync(bench, source)
        assert set(bench.ids("issues")) == {*upto(4)} and bench.ids("repos") == upto(3)
        return
    (problem,) = bench.plan(source, source=APPEND)["problems"]
    for word in ("issues", "--full-refresh", "penstock state reset quick", "state import"):
        assert word in problem, problem
    with pytest.raises(ConfigError) as refused:
        bench.run(source, source=APPEND)
    assert refused.value.exit_code == 2
    sync(bench, source, "repos")  # nothing was changed
    assert bench.ids("repos") == upto(3)
    with bench.known() as known:
        states.replace(known, states.export(known))  # the user knows that it is right
    world(bench, 5, 6, **more)
    sync(bench, source)
    assert bench.ids("repos") == upto(5) and bench.ids("issues")[-2:] == [5, 6]


def test_L6_a_stream_that_is_new_at_the_source_is_no_unread_one(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(rows={"repos": 2}, shape="flat")
    sync(bench, tap)
    world(bench, 3, 3, shape="flat")
    report = bench.run(tap, source=APPEND)
    assert report.exit_code == 0, report.error


@pytest.mark.parametrize("way", ["reset all", "reset one", "--full-refresh", "import", "set"])
def test_L6_what_the_user_does_to_the_state_holds(bench: Bench, way: str) -> None:
    tap = bench.connector(TAP)
    world(bench, 2, 2)
    sync(bench, tap)
    world(bench, 3, 5)
    sync(bench, tap, "repos")
    issues = {"issues": {"replication_key": "id", "replication_key_value": 4}}
    expected = {"reset all": [1, 2, *upto(5)], "reset one": [1, 2, *upto(5)]}
    expected |= {"import": [1, 2, 5], "set": [1, 2, 5], "--full-refresh": [1, 2, *upto(5)]}
    with bench.known() as known:
        if way == "reset all":
            states.reset(known)
        elif way == "reset one":
            states.reset(known, StreamOptions(name="issues"))
        elif way == "import":
            states.replace(known, {"bookmarks": issues})
        elif way == "set":
            states.update(known, {"bookmarks": {**states.export(known)["bookmarks"], **issues}})
    sync(bench, tap, full_refresh=way == "--full-refresh")
    assert bench.ids("issues") == sorted(expected[way])


def test_L6_export_gives_each_stream_its_own_and_another_home_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    tap = bench.connector(TAP)
    world(bench, 2, 2)
    sync(bench, tap)
    world(bench, 3, 5)
    sync(bench, tap, "repos")
    with bench.known() as known:
        shown = {s["name"]: s for s in states.show(known)["streams"]}
        exported = states.export(known)
    assert exported["bookmarks"]["issues"]["replication_key_value"] == 2
    assert shown["issues"]["state"]["replication_key_value"] == 5
    assert shown["issues"]["unread"] == {"state": exported["bookmarks"]["issues"]}
    assert "unread" not in shown["repos"]


def test_L6_a_rewind_moves_the_cursor_of_one_stream_alone(bench: Bench) -> None:
    tap = bench.connector(TAP)
    world(bench, 4, 4)
    sync(bench, tap)
    world(bench, 5, 8)
    sync(bench, tap, "repos")
    with bench.known() as known:
        rewind(known, StreamOptions(name="repos"), "4")
    sync(bench, tap)
    assert bench.ids("repos") == [*upto(5), 5] and bench.ids("issues") == upto(8)
    world(bench, 6, 9)
    sync(bench, tap, "repos")
    with bench.known() as known:
        rewind(known, StreamOptions(name="issues"), "7")
    sync(bench, tap)
    assert bench.ids("issues") == [*upto(8), 8, 9]


def test_L5_a_run_that_died_before_its_state_was_saved_keeps_the_streams_own(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sealed state is saved first, with what it says of streams that it did not read."""
    tap = bench.connector(TAP)
    world(bench, 2, 2)
    sync(bench, tap)

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    def killed(*streams: str) -> None:
        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(bench.tables, "commit", die)
            bench.run(tap, source={**APPEND, **({"streams": list(streams)} if streams else {})})

    world(bench, 3, 3)
    killed()
    world(bench, 4, 6)
    killed("repos")
    world(bench, 5, 7)
    sync(bench, tap)
    assert bench.ids("repos") == upto(5) and bench.ids("issues") == upto(7)


def test_L6_a_read_that_fails_leaves_the_streams_own_state(bench: Bench) -> None:
    """The tap dies before its first state: the next run goes on from the stream's own again."""
    tap = bench.connector(TAP)
    world(bench, 2, 2)
    sync(bench, tap)
    world(bench, 3, 5)
    sync(bench, tap, "repos")
    world(bench, 3, 6, fails="repos")
    assert bench.run(tap, source=APPEND).exit_code == 4
    world(bench, 4, 7)
    sync(bench, tap)
    assert bench.ids("issues") == upto(7) and bench.ids("repos") == upto(4)


HELD = [
    pytest.param(SOURCE, "airbyte", {"kind": "GLOBAL", "shared": {"lsn": 7}}, id="airbyte-GLOBAL"),
    pytest.param(SOURCE, "airbyte", {"kind": "LEGACY"}, id="airbyte-LEGACY"),
    pytest.param(TAP, "singer", {"beside": {"lsn": 7}}, id="singer-beside"),
    pytest.param(TAP, "singer", {"shape": "flat"}, id="singer-flat"),
]


@pytest.mark.parametrize("way", ["a refresh that is cancelled", "a run that fails"])
@pytest.mark.parametrize(("program", "protocol", "more"), HELD)
def test_L6_the_state_is_a_streams_own_as_long_as_it_stays_as_it_was(
    bench: Bench, program: str, protocol: str, more: dict[str, Any], way: str
) -> None:
    """Runs of repos alone save no state. What all share has passed over no row of issues."""
    source = bench.connector(program, protocol)
    world(bench, 2, 3, **more)
    sync(bench, source)
    world(bench, 2, 3, **more, fails="repos")
    alone, anew = {**APPEND, "streams": ["repos"]}, way == "a refresh that is cancelled"
    for _ in range(2):
        assert bench.run(source, source=alone, recreate=anew).exit_code == 4
    if anew:
        with bench.known() as known:
            states.cancel_refresh(known, StreamOptions(name="repos"))
    with bench.known() as known:
        assert not [s for s in states.show(known)["streams"] if "unread" in s]
    world(bench, 4, 5, **more)
    report = sync(bench, source)
    assert (bench.ids("repos"), bench.ids("issues")) == (upto(4), upto(5))
    assert not [note for note in report.notes if "did not read" in note or "start" in note]


@pytest.mark.parametrize(("program", "protocol", "more"), HELD[:1])
def test_L5_what_a_killed_run_sealed_is_no_streams_own(
    bench: Bench, program: str, protocol: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is saved when the next run begins: it has passed over rows of issues."""
    source = bench.connector(program, protocol)
    world(bench, 2, 3, **more)
    sync(bench, source)

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    world(bench, 4, 5, **more)
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(bench.tables, "commit", die)
        bench.run(source, source={**APPEND, "streams": ["repos"]})
    world(bench, 5, 6, **more)
    sync(bench, source)
    assert bench.ids("repos") == upto(5)
    assert {*bench.ids("issues")} == {*upto(6)}


def forget_facts(bench: Bench) -> None:
    """Makes the home one of the version before, which stored nothing of unread streams."""
    import sqlite3

    from penstock.store.database_url import sqlite_file

    with sqlite3.connect(sqlite_file(bench.home.state_url())) as store:
        store.execute(
            f"DELETE FROM {NAMES.name} WHERE kind LIKE 'passed:%' OR kind LIKE 'cursor:%'"
        )
    open_store(bench.home.state_url()).close()


@pytest.mark.parametrize("brought", [False, True])
def test_a_home_of_the_version_before_begins_nothing_again(bench: Bench, brought: bool) -> None:
    """A stream with rows keeps the bookmark that is there; one that was never read has none, but
    where a user brought the state."""
    tap = bench.connector(TAP)
    world(bench, 2, 2)
    sync(bench, tap)
    bench.set(rows={"repos": 3, "issues": 3, "forks": 3})
    sync(bench, tap, "repos")
    if brought:
        with bench.known() as known:
            states.replace(known, states.export(known))
            states.replace(known, json.loads(bench.states()[0].blob) | {
                "bookmarks": {n: {"replication_key_value": 3} for n in ("repos", "issues", "forks")}
            }, force=True)  # fmt: skip
    forget_facts(bench)
    bench.set(rows={"repos": 4, "issues": 4, "forks": 4})
    sync(bench, tap)
    assert bench.ids("repos") == upto(4) and bench.ids("issues") == [1, 2, 4]
    assert bench.ids("forks") == ([4] if brought else upto(4))

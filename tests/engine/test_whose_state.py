"""L6: a stream that begins anew is given no state; L1: a source is given its own. Taps and sources
with other habits than the stubs', two and three runs each, rows counted."""

from pathlib import Path

import pytest
from quick_runs import Bench, Silent

from penstock.config.load import load_pipeline
from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.engine.run.start import run_pipeline
from penstock.errors import ConfigError, StateError

pytestmark = pytest.mark.dear

OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


# A tap as the specification has it: the state's value is the tap's own business. ``WORLD``:
# ``streams``: name -> how many records it holds now; ``state``: the shape; ``catalog``: keys over
# each entry; ``die``: exit 1 after so many records.
TAP = """
import copy
STREAMS, SHAPE = WORLD["streams"], WORLD.get("state", "flat")
def call(name): return WORLD.get("calls", {}).get(name, name)
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    entries = [{"tap_stream_id": n, "stream": n, "schema": schema, **WORLD.get("catalog", {}),
                **WORLD.get("entries", {}).get(n, {})} for n in STREAMS]
    say({"streams": entries}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
state, chosen = given("--state"), None
catalog = given("--catalog")
def selected(entry):
    return any(m["breadcrumb"] == [] and m["metadata"].get("selected") for m in entry["metadata"])
chosen = [e["tap_stream_id"] for e in catalog["streams"] if selected(e)]
def read(state):
    if not state: return {}
    marks = state if SHAPE == "flat" else state.get("bookmarks", {})
    return {n: (marks[call(n)] if SHAPE == "flat" else marks[call(n)].get("at", 0))
            for n in STREAMS if call(n) in marks}
at = read(state)
def tell():
    marks = {call(n): v for n, v in at.items()}
    if SHAPE != "flat":
        marks = {"bookmarks": {n: {"at": v} for n, v in marks.items()}, "currently_syncing": None}
    say({"type": "STATE", "value": marks})
sent = 0
for name in chosen:
    words = {"key_properties": WORLD.get("key", [])}
    say({"type": "SCHEMA", "stream": name, "schema": schema, **words})
    for number in range(at.get(name, 0) + 1, STREAMS[name] + 1):
        if sent == WORLD.get("die"): sys.exit(1)
        say({"type": "RECORD", "stream": name, "record": {"id": number}})
        at[name] = number; sent += 1
        if WORLD.get("often"): tell()
    tell()
"""


def upto(number: int) -> list[int]:
    return list(range(1, number + 1))


@pytest.mark.parametrize("shape", ["flat", "bookmarks"])
def test_L6_a_refresh_is_given_no_state_that_cannot_be_split(bench: Bench, shape: str) -> None:
    """The specification's own example, ``{"users": 2}``; and bookmarks under another name."""
    tap = bench.connector(TAP)
    calls = {} if shape == "flat" else {"users": "public_people"}
    for number in (5, 8, 8):
        bench.set(streams={"users": number}, state=shape, calls=calls)
        report = bench.run(tap, source={"defaults": OVERWRITE})
        assert report.exit_code == 0
        assert bench.ids("users") == upto(number), (shape, number)


VERSIONED = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "at": {"type": "integer"}}}
if "--discover" in sys.argv:
    table = {"breadcrumb": [], "metadata": {"table-key-properties": ["id"]}}
    column = {"breadcrumb": ["properties", "at"], "metadata": {"inclusion": "available"}}
    say({"streams": [{"tap_stream_id": "shop-users", "table_name": "users", "stream": "users",
                      "schema": schema, "metadata": [table, column]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
chosen = given("--catalog")["streams"][0]
words = next(m["metadata"] for m in chosen["metadata"] if m["breadcrumb"] == [])
incremental = words.get("replication-method") == "INCREMENTAL"
mark = (given("--state") or {}).get("bookmarks", {}).get("shop-users", {})
mark = mark if incremental else {}
version = mark.get("version") or WORLD["version"]
say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]})
activate = {"type": "ACTIVATE_VERSION", "stream": "users", "version": version}
if not mark: say(activate)
at = mark.get("replication_key_value", 0)
for number in range(at + 1, WORLD["rows"] + 1):
    row = {"id": number, "at": number}
    say({"type": "RECORD", "stream": "users", "record": row, "version": version})
    mark = {"replication_key": "at", "replication_key_value": number, "version": version}
    say({"type": "STATE", "value": {"bookmarks": {"shop-users": mark}}})
if not incremental: say(activate)
"""


@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_L6_increments_join_the_version_of_a_full_refresh(bench: Bench, mode: str) -> None:
    """A tap as PipelineWise writes them: each refresh has a version, kept in its bookmark, and rows
    that come later have the same one."""
    tap = bench.connector(VERSIONED)
    increments = {
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "cursor_field": ["at"],
        "primary_key": [["id"]],
    }
    turns = [(3, 1, increments), (4, 2, OVERWRITE), (4, 3, increments), (6, 4, increments)]
    for rows, version, modes in turns:
        bench.set(rows=rows, version=version)
        report = bench.run(tap, source={"defaults": modes})
        assert report.exit_code == 0
        assert bench.ids("users") == upto(rows), (rows, version)


@pytest.mark.parametrize("version", [1, 3], ids=["overtaken", "of-another-home"])
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_L6_a_version_that_an_imported_state_goes_on_with_replaces_nothing(
    bench: Bench, mode: str, version: int
) -> None:
    """An older export is brought back, or that of a home which went further: the tap goes on with
    its version."""
    tap = bench.connector(VERSIONED)
    increments = {
        "sync_mode": "incremental",
        "destination_sync_mode": mode,
        "cursor_field": ["at"],
        "primary_key": [["id"]],
    }
    bench.set(rows=3, version=1)
    bench.run(tap, source={"defaults": increments})
    bench.set(rows=4, version=2)
    bench.run(tap, source={"defaults": increments}, full_refresh=True)
    assert bench.ids("users") == upto(4)
    mark = {"replication_key": "at", "replication_key_value": 4, "version": version}
    with bench.known() as pipeline:
        states.replace(pipeline, {"bookmarks": {"shop-users": mark}})
    for rows in (5, 7):
        bench.set(rows=rows, version=9)
        report = bench.run(tap, source={"defaults": increments})
        assert report.exit_code == 0
        assert bench.ids("users") == upto(rows), rows
    bench.set(rows=6, version=1)
    bench.run(tap, source={"defaults": increments}, full_refresh=True)
    bench.set(rows=8, version=9)
    bench.run(tap, source={"defaults": increments})
    assert bench.ids("users") == upto(8)


def test_L6_a_position_of_all_streams_goes_where_all_begin_anew(bench: Bench) -> None:
    """Beside its bookmarks the tap keeps a place in a log (``lsn``), and reads from there."""
    tap = bench.connector(LOG)
    bench.set(rows=5)
    bench.run(tap)
    bench.set(rows=8)
    report = bench.run(tap, full_refresh=True)
    assert (report.exit_code, report.streams[0].read) == (0, 8)
    for rows in (9, 10):
        bench.set(rows=rows)
        assert bench.run(tap, source={"defaults": OVERWRITE}).exit_code == 0
        assert bench.ids("users") == upto(rows)


LOG = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    root = {"breadcrumb": [], "metadata": {"replication-method": "INCREMENTAL"}}
    say({"streams": [{"tap_stream_id": "users", "stream": "users", "schema": schema,
                      "key_properties": ["id"], "metadata": [root]}]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
say({"type": "SCHEMA", "stream": "users", "schema": schema, "key_properties": ["id"]})
for number in range((given("--state") or {}).get("lsn", 0) + 1, WORLD["rows"] + 1):
    say({"type": "RECORD", "stream": "users", "record": {"id": number}})
say({"type": "STATE", "value": {"bookmarks": {"users": {"done": True}}, "lsn": WORLD["rows"]}})
"""


@pytest.mark.parametrize("shape", ["flat", "bookmarks"])
def test_L6_full_refresh_reads_from_the_start(bench: Bench, shape: str) -> None:
    tap = bench.connector(TAP)
    calls = {} if shape == "flat" else {"users": "public_people"}
    bench.set(streams={"users": 5}, state=shape, calls=calls)
    bench.run(tap, source={"defaults": OVERWRITE})
    bench.set(streams={"users": 8}, state=shape, calls=calls)
    report = bench.run(tap, source={"defaults": OVERWRITE}, full_refresh=True)
    assert (report.exit_code, report.streams[0].read) == (0, 8)
    assert bench.ids("users") == upto(8)


def test_L6_full_refresh_of_an_incremental_stream(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(streams={"users": 5}, catalog={"key_properties": ["id"]}, key=["id"])
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    bench.run(tap, source={"defaults": modes})
    report = bench.run(tap, source={"defaults": modes}, full_refresh=True)
    assert (report.exit_code, report.streams[0].read) == (0, 5)
    assert bench.ids("users") == upto(5)


def test_L6_a_catalog_that_says_nothing_leaves_it_to_the_tap(bench: Bench) -> None:
    """No replication key, no forced method: the tap is given its state, and no method."""
    tap = bench.connector(TAP)
    journal = bench.folder / "catalog.json"
    tap = bench.connector(
        f"""
        if "--catalog" in sys.argv:
            open({str(journal)!r}, "w").write(json.dumps(given("--catalog")))
        """
        + TAP.replace("\n", "\n        ")
    )
    read: list[int] = []
    for number in (5, 8, 8):
        bench.set(streams={"users": number}, catalog={"key_properties": ["id"]}, key=["id"])
        read.append(bench.run(tap).streams[0].read)
        assert bench.ids("users") == upto(number)
    assert read == [5, 3, 0]
    assert "replication-method" not in journal.read_text()
    assert "replication_method" not in journal.read_text()


MIXED = [
    {"name": "users", **OVERWRITE},
    {"name": "locations", "sync_mode": "incremental", "destination_sync_mode": "append"},
]
CURSOR = {"cursor_field": "id", "sync_mode": "incremental", "destination_sync_mode": "append"}


def test_L6_a_mix_over_a_state_that_cannot_be_split_is_refused(bench: Bench) -> None:
    tap = bench.connector(TAP)
    bench.set(streams={"users": 5, "locations": 3})
    assert bench.run(tap, source={"streams": MIXED}).exit_code == 0
    bench.set(streams={"users": 8, "locations": 4})
    (problem,) = bench.plan(tap, source={"streams": MIXED})["problems"]
    for word in ("users", "locations", "--full-refresh", "state reset", "pipeline"):
        assert word in problem, problem
    with pytest.raises(ConfigError) as refused:
        bench.run(tap, source={"streams": MIXED})
    assert refused.value.exit_code == 2
    assert bench.ids("users") == upto(5)
    report = bench.run(tap, source={"streams": MIXED}, full_refresh=True)  # a way out
    assert (report.exit_code, bench.ids("users")) == (0, upto(8))


@pytest.mark.parametrize(
    "name", ["users", "people", "app-people", "app_people", "app.people", "people_v2", "PEOPLE"]
)
def test_L6_bookmarks_are_matched_by_the_names_that_taps_use(bench: Bench, name: str) -> None:
    """tap_stream_id, stream, the schema before it, the table's name."""
    tap = bench.connector(TAP)
    words = {"schema-name": "app", "table-name": "people_v2", "forced-replication-method": ""}
    entry = {"stream": "people", "metadata": [{"breadcrumb": [], "metadata": words}]}
    more = {"entries": {"users": entry}, "calls": {"users": name}, "state": "bookmarks"}
    bench.set(streams={"users": 5, "locations": 3}, **more)
    bench.run(tap, source={"streams": MIXED})
    bench.set(streams={"users": 8, "locations": 4}, **more)
    report = bench.run(tap, source={"streams": MIXED})
    read = {s.name: s.read for s in report.streams}
    assert (report.exit_code, read) == (0, {"users": 8, "locations": 1})
    assert bench.ids("people") == upto(8) and bench.ids("locations") == upto(4)
    with bench.known() as known:  # one stream's reset finds it by any of them
        states.reset(known, StreamOptions(name="users"))
    bench.set(streams={"users": 8, "locations": 4}, **more)
    again = bench.run(tap, source={"streams": [{"name": "users", **CURSOR}, MIXED[1]]})
    assert {s.name: s.read for s in again.streams} == {"users": 8, "locations": 0}


def without_catalog(body: str) -> str:
    body = body.replace(
        'if "--discover" in sys.argv:',
        'if "--discover" in sys.argv: sys.exit("unrecognized arguments: --discover")\nif 0:',
    )
    return body.replace("chosen = [e[", "chosen = STREAMS; 0 and [e[")


@pytest.mark.parametrize("shape", ["flat", "bookmarks"])
def test_L6_what_was_sent_unwanted_is_read_again_when_it_is_wanted(
    bench: Bench, shape: str
) -> None:
    """A tap without a catalog sends every stream, and its state says so too."""
    tap = bench.connector(without_catalog(TAP))
    only = {"streams": [{"name": "orders"}]}
    bench.set(streams={"orders": 3, "users": 4}, state=shape)
    assert bench.run(tap, source=only).exit_code == 0
    bench.set(streams={"orders": 5, "users": 6}, state=shape)
    report = bench.run(tap)
    assert report.exit_code == 0, report
    assert set(bench.ids("orders")) == {*range(1, 6)}
    assert bench.ids("users") == [*range(1, 7)]
    assert any("users: read from the start" in note for note in report.notes)
    bench.set(streams={"orders": 5, "users": 8}, state=shape)
    assert bench.run(tap).exit_code == 0
    assert bench.ids("users") == [*range(1, 9)]


@pytest.mark.parametrize("sync_mode", [{}, {"sync_mode": "incremental"}])
def test_L6_a_table_that_is_replaced_is_read_whole_though_the_last_run_did_not_want_it(
    bench: Bench, sync_mode: dict[str, str]
) -> None:
    """Its own last state would leave the increment alone in the table."""
    tap = bench.connector(without_catalog(TAP))
    bench.set(streams={"orders": 3, "users": 4}, state="bookmarks")
    assert bench.run(tap).exit_code == 0
    assert bench.run(tap, source={"streams": [{"name": "orders"}]}).exit_code == 0
    bench.set(streams={"orders": 5, "users": 6}, state="bookmarks")
    replaced = {"destination_sync_mode": "overwrite", **sync_mode}
    report = bench.run(tap, source={"defaults": replaced})
    assert report.exit_code == 0, report
    assert (bench.ids("orders"), bench.ids("users")) == (upto(5), upto(6))
    assert any("users: read from the start, since" in note for note in report.notes)


@pytest.mark.parametrize("others", ["orders", "orders*"])
def test_a_stream_that_is_named_and_never_comes_fails_the_run(bench: Bench, others: str) -> None:
    """Of a tap without a catalog nothing tells it before; what came is kept."""
    tap = bench.connector(without_catalog(TAP))
    bench.set(streams={"orders": 3, "users": 4})
    report = bench.run(tap, source={"streams": [{"name": others}, {"name": "usres"}]})
    error = report.error or {}
    assert (error.get("code"), report.exit_code) == ("config.unknown_stream", 2)
    assert "'usres'" in error["message"] and "did you mean 'users'?" in error["hint"]
    assert bench.ids("orders") == upto(3)
    alone = bench.run(tap, source={"streams": [{"name": "elsewhere"}]})
    assert alone.exit_code == 2 and "orders, users" in (alone.error or {})["hint"]
    # mended: what was passed over is read from the start
    assert bench.run(tap, source={"streams": [{"name": others}, {"name": "users"}]}).exit_code == 0
    assert bench.ids("users") == upto(4)


def test_a_stream_of_which_nothing_is_new_may_stay_away(bench: Bench) -> None:
    """A tap may send no stream at all, or not one that an earlier run knew; a pattern need fit
    nothing."""
    quiet = "tell()\nfor name in [n for n in chosen if n not in WORLD.get('quiet', [])]:"
    tap = bench.connector(without_catalog(TAP).replace("for name in chosen:", quiet))
    both = {"streams": [{"name": "orders"}, {"name": "users"}]}
    bench.set(streams={"orders": 3, "users": 4}, quiet=["orders", "users"])
    assert bench.run(tap, source=both).exit_code == 0
    bench.set(streams={"orders": 3, "users": 4})
    assert bench.run(tap, source=both).exit_code == 0
    for silent in (["users"], ["orders", "users"]):
        bench.set(streams={"orders": 5, "users": 4}, quiet=silent)
        assert bench.run(tap, source=both).exit_code == 0
    assert bench.run(tap, source={"streams": [{"name": "orders"}, {"name": "x_*"}]}).exit_code == 0


# It sends every stream of its catalog, and calls it by ``calls`` in its messages.
DEAF_TAP = TAP.replace("if selected(e)]", "]").replace('"stream": name', '"stream": call(name)')


@pytest.mark.parametrize("shape", ["flat", "bookmarks"])
@pytest.mark.parametrize("before", ["wanted before", "never wanted"])
def test_L6_a_tap_that_does_not_look_at_selected_is_read_from_the_start(
    bench: Bench, shape: str, before: str
) -> None:
    tap = bench.connector(DEAF_TAP)
    append = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    more = {"state": shape, "catalog": {"key_properties": ["id"]}, "key": ["id"]}
    only = {"streams": [{"name": "orders", **append}]}
    if before == "wanted before":
        bench.set(streams={"orders": 1, "users": 2}, **more)
        assert bench.run(tap, source={"defaults": append}).exit_code == 0
    bench.set(streams={"orders": 3, "users": 4}, **more)
    assert bench.run(tap, source=only).exit_code == 0
    bench.set(streams={"orders": 5, "users": 6}, **more)
    report = bench.run(tap, source={"defaults": append})
    assert report.exit_code == 0, report
    assert (bench.ids("orders"), bench.ids("users")) == (upto(5), upto(6))
    assert any("users: read from the start" in note for note in report.notes)
    bench.set(streams={"orders": 5, "users": 8}, **more)
    report = bench.run(tap, source={"defaults": append})
    assert {s.name: s.read for s in report.streams} == {"orders": 0, "users": 2}
    assert bench.ids("users") == upto(8)


@pytest.mark.parametrize("known", ["in the catalog", "not yet"])
def test_L6_what_was_sent_unwanted_is_known_by_any_of_its_names(bench: Bench, known: str) -> None:
    """Messages say ``stream``, the catalog's identity is another; and a stream may be in the
    catalog only after it was sent."""
    tap = bench.connector(DEAF_TAP.replace("in STREAMS]", "in STREAMS if n not in HIDDEN]").replace(
        "def call(", "HIDDEN = WORLD.get('hidden', [])\ndef call(").replace(
        'catalog["streams"] ]', 'catalog["streams"]] + HIDDEN'))  # fmt: skip
    more = {
        "state": "bookmarks",
        "calls": {"app-users": "users"},
        "entries": {"app-users": {"stream": "users"}},
    }
    only = {"streams": [{"name": "orders"}]}
    hidden = ["app-users"] if known == "not yet" else []
    bench.set(streams={"orders": 3, "app-users": 4}, hidden=hidden, **more)
    assert bench.run(tap, source=only).exit_code == 0
    bench.set(streams={"orders": 5, "app-users": 6}, **more)
    pipeline = load_pipeline(bench.file(tap), env={})
    report = run_pipeline(pipeline, bench.home, observer=Silent())
    assert report.exit_code == 0, report
    assert set(bench.ids("users")) == {*upto(6)}
    assert any("app-users: read from the start" in note for note in report.notes)


def test_L6_nothing_new_of_the_wanted_beside_records_of_the_others(bench: Bench) -> None:
    """Records of a stream that the catalog has are no proof that names are not understood; the
    wanted one, of which no SCHEMA came, is incomplete."""
    quiet = "    if WORLD.get('quiet') == name: continue\n    words = "
    tap = bench.connector(DEAF_TAP.replace("    words = ", quiet))
    only = {"streams": [{"name": "orders"}]}
    bench.set(streams={"orders": 3, "users": 4}, quiet="orders")
    report = bench.run(tap, source=only)
    assert (report.exit_code, (report.error or {})["code"]) == (4, "source.incomplete"), report


@pytest.mark.parametrize("later", ["full_refresh", "incremental"])
def test_L6_a_refresh_that_died_leaves_no_state_that_speaks_for_it(
    bench: Bench, later: str
) -> None:
    """Its rows are given up; whoever comes after must not go on behind them."""
    tap = bench.connector(TAP)
    bench.set(streams={"users": 8}, die=5, often=True)
    assert bench.run(tap, source={"defaults": OVERWRITE}).exit_code == 4
    assert bench.ids("users") == []
    if later == "incremental":  # a run that dies at once gives up what the first had sealed
        bench.set(streams={"users": 8}, die=0)
        assert bench.run(tap, source={"defaults": OVERWRITE}).exit_code == 4
    bench.set(streams={"users": 8})
    modes = OVERWRITE if later == "full_refresh" else {"sync_mode": "incremental"}
    assert bench.run(tap, source={"defaults": modes}).exit_code == 0
    assert bench.ids("users") == upto(8)


# An Airbyte source: ``kind`` of its state; ``deaf``: it looks at the shared state only.
SOURCE = """
STREAMS, KIND = WORLD["streams"], WORLD["kind"]
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
def entry(n):
    return {"name": n, "json_schema": schema, "source_defined_cursor": True,
            "source_defined_primary_key": [["id"]],
            "supported_sync_modes": ["full_refresh", "incremental"]}
if sys.argv[1] == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
if sys.argv[1] == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [entry(n) for n in STREAMS]}})
if sys.argv[1] != "read": sys.exit(0)
at = {}
state = given("--state")
if state and KIND == "LEGACY":
    at = dict(state)
elif state:
    found = state[0]["global"]
    own = {s["stream_descriptor"]["name"]: s["stream_state"] for s in found["stream_states"]}
    shared = found.get("shared_state") or {}
    at = {n: shared.get(n, 0) for n in STREAMS if shared or own.get(n)}
def tell():
    if KIND == "LEGACY":
        say({"type": "STATE", "state": {"data": at}})
        return
    entries = [{"stream_descriptor": {"name": n}, "stream_state": {"done": True}} for n in at]
    told = {"shared_state": at, "stream_states": entries}
    say({"type": "STATE", "state": {"type": "GLOBAL", "global": told}})
def status(name, what):
    told = {"stream_descriptor": {"name": name}, "status": what}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1.5, "stream_status": told}
    say({"type": "TRACE", "trace": trace})
SAYS = WORLD.get("says", {})
for chosen in given("--catalog")["streams"]:
    name = chosen["stream"]["name"]
    for what in SAYS.get(name, [])[:2]: status(name, what)
    for number in range(at.get(name, 0) + 1, STREAMS[name] + 1):
        data = {"stream": name, "data": {"id": number}, "emitted_at": 1}
        say({"type": "RECORD", "record": data})
        at[name] = number
    if KIND: tell()
    for what in SAYS.get(name, [])[2:]: status(name, what)
"""

# An Airbyte source that reads its streams at once, as those of Airbyte's bulk CDK do: GLOBAL
# names the streams that have a position. ``says``: what it prints, (stream, id) or the positions.
CONCURRENT = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
def entry(n):
    return {"name": n, "json_schema": schema, "source_defined_cursor": True, "is_resumable": True,
            "supported_sync_modes": ["full_refresh", "incremental"]}
if sys.argv[1] == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
if sys.argv[1] == "discover":
    say({"type": "CATALOG", "catalog": {"streams": [entry(n) for n in ("countries", "orders")]}})
if sys.argv[1] != "read": sys.exit(0)
state, at = given("--state"), {}
for one in state[0]["global"]["stream_states"] if state else []:
    at[one["stream_descriptor"]["name"]] = (one["stream_state"] or {}).get("at", 0)
for told in WORLD["says"]:
    if isinstance(told, dict):
        entries = [{"stream_descriptor": {"name": n}, "stream_state": {"at": a}}
                   for n, a in told.items()]
        body = {"shared_state": {"position": 1}, "stream_states": entries}
        say({"type": "STATE", "state": {"type": "GLOBAL", "global": body}})
    elif told[1] > at.get(told[0], 0):
        data = {"stream": told[0], "data": {"id": told[1]}, "emitted_at": 1}
        say({"type": "RECORD", "record": data})
sys.exit(WORLD["code"])
"""


@pytest.mark.parametrize("named", [True, False])
def test_L6_a_refresh_that_died_goes_on_only_where_the_shared_state_names_it(
    bench: Bench, named: bool
) -> None:
    """What the shared state does not name the source sends again."""
    source = bench.connector(CONCURRENT, "airbyte")
    append = {"sync_mode": "incremental", "destination_sync_mode": "append"}
    modes = {"streams": [{"name": "countries", **OVERWRITE}, {"name": "orders", **append}]}
    first = [("orders", 1), ("countries", 1), {"orders": 1, **({"countries": 1} if named else {})}]
    then = [("countries", 2), ("orders", 2), {"orders": 2, "countries": 2}]
    bench.set(says=first, code=1)
    assert bench.run(source, source=modes).exit_code == 4
    bench.set(says=[*first, *then], code=0)
    report = bench.run(source, source=modes)
    assert report.exit_code == 0, report.error
    assert (bench.ids("countries"), bench.ids("orders")) == (upto(2), upto(2))


DEDUP = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}


@pytest.mark.parametrize("kind", ["LEGACY", "GLOBAL"])
@pytest.mark.parametrize("way", ["--full-refresh", "state reset", "mode"])
def test_L6_a_shared_state_goes_with_all_of_its_streams(bench: Bench, kind: str, way: str) -> None:
    """A source that goes by the shared part, whatever its entries say."""
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams={"users": 5, "orders": 2}, kind=kind)
    first = OVERWRITE if way == "mode" else DEDUP
    assert bench.run(source, source={"defaults": first}).exit_code == 0
    if way == "state reset":
        with bench.known() as known:
            states.reset(known)
    bench.set(streams={"users": 8, "orders": 2}, kind=kind)
    full = way == "--full-refresh"
    report = bench.run(source, source={"defaults": first}, full_refresh=full)
    assert report.exit_code == 0
    assert {s.name: s.read for s in report.streams} == {"users": 8, "orders": 2}
    assert bench.ids("users") == upto(8) and bench.ids("orders") == upto(2)


def test_L6_a_legacy_state_is_not_given_to_a_mix(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    bench.set(streams={"users": 5, "orders": 2}, kind="LEGACY")
    mix = [{"name": "users", **OVERWRITE}, {"name": "orders", **DEDUP}]
    assert bench.run(source, source={"streams": mix}).exit_code == 0
    with pytest.raises(ConfigError, match="cannot run as it is"):
        bench.run(source, source={"streams": mix})
    with bench.known() as known, pytest.raises(StateError, match="cannot be reset"):
        states.reset(known, StreamOptions(name="users"))
    alone = [{"name": "users", **OVERWRITE}]
    bench.set(streams={"users": 8, "orders": 2}, kind="LEGACY")
    assert bench.run(source, source={"streams": alone}).exit_code == 0
    assert bench.ids("users") == upto(8)


# It reads every stream that it has, whatever the configured catalog says.
DEAF_SOURCE = SOURCE.replace("if shared or own.get(n)", "if own.get(n)").replace(
    'for chosen in given("--catalog")["streams"]:', "for chosen in map(lambda n: "
    '{"stream": {"name": n}}, STREAMS):'
).replace(
    "def tell():", """def tell():
    if KIND == "STREAM":
        told = {"stream_descriptor": {"name": name}, "stream_state": {"at": at.get(name, 0)}}
        say({"type": "STATE", "state": {"type": "STREAM", "stream": told}})
        return"""
).replace(
    "elif state:", """elif state and KIND == "STREAM":
    own = [s["stream"] for s in state]
    at = {s["stream_descriptor"]["name"]: s["stream_state"]["at"] for s in own}
elif state:"""
)  # fmt: skip


@pytest.mark.parametrize("kind", ["STREAM", "GLOBAL", "LEGACY"])
@pytest.mark.parametrize("before", ["wanted before", "never wanted"])
def test_L6_a_source_that_does_not_look_at_the_catalog_is_read_from_the_start(
    bench: Bench, kind: str, before: str
) -> None:
    """Each kind of its state speaks for streams that were not configured."""
    source = bench.connector(DEAF_SOURCE, "airbyte")
    if before == "wanted before":
        bench.set(streams={"orders": 1, "users": 2}, kind=kind)
        assert bench.run(source, source={"defaults": DEDUP}).exit_code == 0
    bench.set(streams={"orders": 3, "users": 4}, kind=kind)
    only = {"streams": [{"name": "orders", **DEDUP}]}
    assert bench.run(source, source=only).exit_code == 0
    bench.set(streams={"orders": 5, "users": 6}, kind=kind)
    report = bench.run(source, source={"defaults": DEDUP})
    assert report.exit_code == 0, report
    assert (bench.ids("orders"), bench.ids("users")) == (upto(5), upto(6))
    bench.set(streams={"orders": 5, "users": 8}, kind=kind)
    report = bench.run(source, source={"defaults": DEDUP})
    assert {s.name: s.read for s in report.streams} == {"orders": 0, "users": 2}


BEGUN = ["STARTED", "RUNNING"]


def test_L6_exit_code_0_decides_where_a_source_says_only_that_it_began(bench: Bench) -> None:
    source = bench.connector(SOURCE, "airbyte")
    for number in (5, 8):
        says = {"users": BEGUN, "orders": ["STARTED"]}
        bench.set(streams={"users": number, "orders": 2}, kind=None, says=says)
        report = bench.run(source, source={"defaults": OVERWRITE})
        assert (report.status, report.exit_code) == ("succeeded", 0)
        assert bench.ids("users") == upto(number) and bench.ids("orders") == [1, 2]


@pytest.mark.parametrize("end", ["COMPLETE", "INCOMPLETE"])
def test_L6_a_source_that_says_of_some_how_they_end_must_say_it_of_all(
    bench: Bench, end: str
) -> None:
    """Exit code 0 is then no proof of the others; the hint says what becomes of the table."""
    source = bench.connector(SOURCE, "airbyte")
    says = {"users": BEGUN, "orders": [*BEGUN, end]}
    bench.set(streams={"users": 5, "orders": 2}, kind=None, says=says)
    report = bench.run(source, source={"defaults": OVERWRITE})
    assert report.exit_code == (1 if end == "COMPLETE" else 4)
    assert bench.ids("users") == []
    assert bench.ids("orders") == ([1, 2] if end == "COMPLETE" else [])
    error = report.error or {}
    assert error["code"] == "source.incomplete"
    assert "COMPLETE" in error["hint"] and "saved state" not in error["hint"]


# -- another source under the same name


@pytest.mark.parametrize("way", ["name", "reset", "same_as", "moved"])
def test_L1_another_source_is_not_given_the_state(bench: Bench, way: str) -> None:
    one, two = bench.connector(TAP, name="tap_one"), bench.connector(TAP, name="tap_two")
    modes = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}
    bench.set(streams={"users": 5})
    assert bench.run(one, source=modes).exit_code == 0
    options = bench.run(f"{one} --debug", source=modes)  # options are configuration
    assert (options.exit_code, options.streams[0].read) == (0, 0)
    bench.set(streams={"users": 8})
    with pytest.raises(ConfigError) as refused:
        bench.run(two, source=modes)
    assert (refused.value.exit_code, refused.value.code) == (2, "config.other_source")
    (problem,) = bench.plan(two, source=modes)["problems"]
    for word in ("--name", "penstock state reset quick", "source.same_as", "tap_one.py"):
        assert word in problem, problem
    assert bench.ids("users") == upto(5)
    expected = [*upto(5), *upto(8)]
    if way == "name":
        report = bench.run(two, source=modes, pipeline="other")
    elif way == "reset":
        with bench.known() as known:
            states.reset(known)
        report = bench.run(two, source=modes)
    else:
        expected = upto(8)
        told = {"same_as": one} if way == "same_as" else {}
        if way == "moved":
            (bench.folder / "later").mkdir()
            old = bench.folder / "tap_one.py"
            two = f"singer:{bench.folder / 'later' / 'tap_one.py'}".replace(":", ":python3 ", 1)
            old.rename(bench.folder / "later" / "tap_one.py")
        report = bench.run(two, source={**modes, **told})
    assert report.exit_code == 0
    assert bench.ids("users") == sorted(expected)
    assert bench.run(two, source=modes, **({"pipeline": "other"} if way == "name" else {}))


def test_L1_what_another_source_has_only_sealed_counts_as_its_state(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that died before its first load: the next run saves that state, then gives it."""
    one, two = bench.connector(TAP, name="tap_one"), bench.connector(TAP, name="tap_two")
    bench.set(streams={"users": 5})

    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    modes = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(bench.tables, "commit", die)
        bench.run(one, source=modes)
    assert bench.states() == []
    bench.set(streams={"users": 8})
    with pytest.raises(ConfigError, match="would go on"):
        bench.run(two, source=modes)
    assert bench.run(one, source=modes).exit_code == 0
    assert bench.ids("users") == upto(8)


def test_L1_with_no_saved_state_any_source_may_come(bench: Bench) -> None:
    one, two = bench.connector(TAP, name="tap_one"), bench.connector(TAP, name="tap_two")
    bench.set(streams={"users": 5}, die=0)
    assert bench.run(one).exit_code == 4
    bench.set(streams={"users": 8})
    assert bench.run(two).exit_code == 0
    assert bench.ids("users") == upto(8)

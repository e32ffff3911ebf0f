"""Penstock as another platform's connector (issue 4, "We are connectors too"): a Singer target and
an Airbyte destination, as processes, with their own Spark.

What an ack may say is L1: a state comes back once everything before it is in the table. Tables are
read by delta-rs or DuckDB.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import deltalake
import duckdb
import pytest
from connector_sites import stub
from uv import find_uv_bin

import forked_cli
import warm_spark
from forked_cli import SCRIPT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SECONDS = 150.0
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "seq": {"type": "integer"}},
}
Row = dict[str, Any]


class Served:
    """One ``penstock serve`` that goes on. ``states``: its stdout so far, a line each."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.lines: list[str] = []
        self.err = ""
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        for line in _pipe(self.process.stdout):
            self.lines.append(line.decode())

    def _read_err(self) -> None:
        for line in _pipe(self.process.stderr):
            self.err += line.decode(errors="replace")

    def feed(self, *messages: Any) -> None:
        given = _pipe(self.process.stdin)
        for message in messages:
            given.write(message if isinstance(message, bytes) else json.dumps(message).encode())
            given.write(b"\n")
        given.flush()

    def states_after(self, count: int, seconds: float = SECONDS) -> list[Any]:
        """Its states, once there are so many."""
        deadline = time.monotonic() + seconds
        while len(self.lines) < count and time.monotonic() < deadline:
            assert self.process.poll() is None, self.err
            time.sleep(0.05)
        assert len(self.lines) >= count, self.err
        return self.states

    @property
    def states(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    def end(self) -> int:
        """Its exit code, after the end of its input."""
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(10)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.wait()


def _pipe(file: "IO[bytes] | None") -> "IO[bytes]":
    assert file is not None
    return file


class Place:
    """A folder, a home and a lake of its own. ``format``: parquet or delta. ``script``: what is
    started; its default cannot be killed."""

    def __init__(self, folder: Path, format: str) -> None:
        self.script = forked_cli.folder_of_script() / "penstock"
        self.folder, self.lake, self.home = folder, folder / "lake", folder / "home"
        self.format = format
        folder.mkdir(parents=True)
        self.environ = warm_spark.as_environment(PENSTOCK_HOME=str(self.home), NO_COLOR="1")
        self._running: list[Served] = []

    def write(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(value))
        return str(path)

    def serve(self, *words: str) -> Served:
        process = subprocess.Popen(
            [str(self.script), "serve", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environ,
            cwd=self.folder,
        )
        self._running.append(Served(process))
        return self._running[-1]

    def target(self, **settings: Any) -> Served:
        settings = {"destination": f"{self.format}:{self.lake}", "pipeline": "served", **settings}
        return self.serve("target", "--as", "singer", "--config", self.write("c.json", settings))

    def destination(self, streams: list[Any], **settings: Any) -> Served:
        settings = {"destination": f"{self.format}:{self.lake}", "pipeline": "served", **settings}
        config = self.write("c.json", settings)
        catalog = self.write("catalog.json", {"streams": streams})
        words = ("--as", "airbyte", "write", "--config", config, "--catalog", catalog)
        return self.serve("destination", *words)

    def told(self, *words: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        return forked_cli.run(
            words, stdin=stdin, cwd=self.folder, env=self.environ, timeout=SECONDS
        )

    def rows(self, table: str) -> list[Row]:
        folder = self.lake / table
        if (folder / "_delta_log").is_dir():
            return deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        if not any(folder.glob("*.parquet")):
            return []
        found = duckdb.connect().sql(f"SELECT * FROM read_parquet('{folder}/*.parquet')")
        return found.to_arrow_table().to_pylist()

    def seqs(self, table: str) -> list[int]:
        return sorted(row["seq"] for row in self.rows(table))

    def report(self) -> Row:
        """Of the newest run."""
        runs = sorted((self.home / "runs").glob("*/report.json"))
        return json.loads(runs[-1].read_text())

    def end_all(self) -> None:
        for served in self._running:
            if served.process.poll() is None:
                served.process.kill()
                served.process.wait(30)


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """Parquet, unless a test is given another format."""
    made = Place(tmp_path / "served", getattr(request, "param", "parquet"))
    yield made
    made.end_all()


in_delta = pytest.mark.parametrize("place", ["delta"], indirect=True)


def tap(**options: Any) -> bytes:
    """What the stub tap says."""
    command = shlex.split(stub("stub_tap.py", "--with", json.dumps(options)))
    done = subprocess.run([*command, "--config", "/dev/null"], capture_output=True, timeout=60)
    return done.stdout


def source(folder: Path, streams: list[Any], **options: Any) -> bytes:
    """What the stub source says of these streams."""
    catalog = folder / "read.json"
    catalog.write_text(json.dumps({"streams": streams}))
    config = folder / "source.json"
    config.write_text(json.dumps({}))
    command = shlex.split(stub("stub_source.py", "--with", json.dumps(options)))
    words = ["read", "--config", str(config), "--catalog", str(catalog)]
    done = subprocess.run([*command, *words], capture_output=True, timeout=60)
    return done.stdout


def schema(stream: str = "s0", **more: Any) -> Row:
    return {"type": "SCHEMA", "stream": stream, "schema": SCHEMA, "key_properties": ["id"], **more}


def records(first: int, last: int, stream: str = "s0", **more: Any) -> list[Row]:
    return [
        {"type": "RECORD", "stream": stream, "record": {"id": n, "seq": n}, **more}
        for n in range(first, last + 1)
    ]


def state(n: int) -> Row:
    return {"type": "STATE", "value": {"bookmarks": {"s0": {"at": n}}}}


def entry(name: str, mode: str = "append", **more: Any) -> Row:
    """A stream of a configured catalog."""
    stream = {"name": name, "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]}
    if "namespace" in more:
        stream["namespace"] = more.pop("namespace")
    told = {"sync_mode": "incremental", "destination_sync_mode": mode, "primary_key": [["id"]]}
    return {"stream": stream, **told, **more}


def record(stream: str, seq: int, namespace: str | None = None, **data: Any) -> Row:
    body = {"stream": stream, "data": {"id": seq, "seq": seq, **data}, "emitted_at": seq}
    if namespace:
        body["namespace"] = namespace
    return {"type": "RECORD", "record": body}


def stream_state(name: str, seq: int) -> Row:
    stream = {"stream_descriptor": {"name": name}, "stream_state": {"seq": seq}}
    return {"type": "STATE", "state": {"type": "STREAM", "stream": stream, "id": seq}}


def complete(name: str) -> Row:
    status = {"stream_descriptor": {"name": name}, "status": "COMPLETE"}
    trace = {"type": "STREAM_STATUS", "emitted_at": 1.5, "stream_status": status}
    return {"type": "TRACE", "trace": trace}


def as_sent(states: list[Any]) -> list[Any]:
    """States that came back, without the counts that a destination adds."""
    bare = json.loads(json.dumps(states))
    for message in bare:
        message.get("state", {}).pop("destinationStats", None)
    return bare


def counts(states: list[Any], name: str, namespace: str | None = None) -> tuple[float, float]:
    """What they say of a stream: rows that were taken, records that were rejected."""
    wanted = {"name": name} | ({"namespace": namespace} if namespace else {})
    given = [
        m["state"]["destinationStats"]
        for m in states
        if m["type"] == "STATE" and m["state"]["stream"]["stream_descriptor"] == wanted
    ]
    return sum(s["recordCount"] for s in given), sum(s["rejectedRecordCount"] for s in given)


# -- a Singer target


def test_l1_a_target_gives_states_back_in_order_and_nothing_else(place: Place) -> None:
    """Noise, fields that no SCHEMA has, rows after the last STATE, and then no input at all."""
    given = tap(scenario="noise", records=100, trailing=10)
    told = [json.loads(line) for line in given.splitlines() if b'"STATE"' in line]
    served = place.target()
    served.feed(given[:-1])
    served.feed(*({**r, "record": {**r["record"], "colour": "red"}} for r in records(101, 105)))
    assert served.end() == 0, served.err
    assert served.states == [told[-1]["value"]], "one load, one state"
    assert place.seqs("s0") == list(range(1, 106))
    assert place.seqs("s1") == list(range(1, 101))
    report = place.report()
    assert (report["status"], report["guarantee"]) == ("succeeded", "at-least-once")
    assert any("s0.colour (5)" in note for note in report["notes"]), report["notes"]
    silent = place.target()
    assert (silent.end(), silent.lines) == (0, []), silent.err
    assert len(place.rows("s0")) == 105


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"type": "RECORD", "stream": "s0", "record": {"seq": 4}}, "source.data"),
        ({"type": "SCHEMA", "stream": "s1", "schema": "no"}, "source.bad_schema"),
    ],
)
def test_l8_a_host_hears_what_a_target_cannot_take(place: Place, bad: Row, code: str) -> None:
    """Though its rows are only appended; and no state that comes after it goes back."""
    given = [schema(), *records(1, 3), state(3), bad, *records(5, 6), state(6)]
    served = place.target(destination_sync_mode="append")
    served.feed(*given)
    assert served.end() == 4, served.err
    assert state(6)["value"] not in served.states
    assert place.report()["error"]["code"] == code, served.err
    aside = place.target(on_data_error="dlq", pipeline="aside", destination_sync_mode="append")
    aside.feed(*given)
    assert aside.end() == 0, aside.err
    assert aside.states == [state(6)["value"]]


@in_delta
def test_l1_a_target_killed_in_the_middle_loses_nothing(place: Place) -> None:
    """SIGKILL after the first state came back: its rows are in the table, and a tap that goes on
    from it brings the rest. What came after it is not loaded behind the tap's back."""
    place.script = SCRIPT
    served = place.target(load_seconds=0.5)
    served.feed(schema(), *records(1, 100), state(100))
    deadline = time.monotonic() + SECONDS
    while not served.lines and time.monotonic() < deadline:  # a state is sealed every ten seconds
        served.feed(state(100))
        time.sleep(0.5)
    first = served.states_after(1)[0]
    assert first == state(100)["value"]
    assert place.seqs("s0") == list(range(1, 101))
    served.feed(*records(101, 150), state(150), *records(151, 160))
    served.kill()
    assert all(s == first for s in served.states)
    again = place.target()
    again.feed(schema(), *records(101, 170), state(170))
    assert again.end() == 0, again.err
    assert again.states == [state(170)["value"]]
    assert place.seqs("s0") == list(range(1, 171))


def test_l6_a_version_replaces_the_rows_once_its_tap_says_so(place: Place) -> None:
    first = place.target()
    first.feed(tap(records=20, streams=1, version=7, activate="both")[:-1])
    assert first.end() == 0, first.err
    assert place.seqs("s0") == list(range(1, 21))
    died = place.target()
    died.feed(tap(records=5, streams=1, version=8)[:-1])
    assert died.end() == 4, died.err
    assert place.seqs("s0") == list(range(1, 21)), "the end of the input says nothing"
    assert died.lines == []
    second = place.target()
    second.feed(tap(records=9, streams=1, version=9, activate="after")[:-1])
    assert second.end() == 0, second.err
    assert place.seqs("s0") == list(range(1, 10))
    assert second.states[-1]["bookmarks"]["s0"]["replication_key_value"] == 9


def test_l6_an_increment_that_begins_anew_takes_the_place_of_the_old_rows(place: Place) -> None:
    """pipelinewise-tap-postgres, INCREMENTAL: its only ACTIVATE_VERSION comes before its rows, and
    after its host has reset its state each run has another version."""

    def served(records: int, **options: Any) -> Served:
        known = {"streams": 1, "activate": "before", "bookmark": "seq", "records": records}
        target = place.target()
        target.feed(tap(**known, **options)[:-1])
        return target

    first = served(20, version=7)
    assert (first.end(), len(first.lines)) == (0, 1), first.err
    torn = served(9, version=8, trailing=2)
    assert torn.end() == 4, torn.err
    assert (place.seqs("s0"), torn.lines) == (list(range(1, 21)), [])
    assert place.report()["error"]["code"] == "source.open_version"
    anew = served(9, version=9)
    assert anew.end() == 0, anew.err
    assert place.seqs("s0") == list(range(1, 10))
    assert anew.states[-1]["bookmarks"]["s0"]["replication_key_value"] == 9


def test_a_target_tells_what_it_is_and_refuses_what_it_does_not_understand(place: Place) -> None:
    about = place.told("serve", "target", "--as", "singer", "--about", "--format=json")
    assert about.returncode == 0, about.stderr
    told = json.loads(about.stdout)
    assert "activate-version" in told["capabilities"]
    assert "destination" in told["settings"]["properties"]
    bad = place.write("bad.json", {"destination": "delta:./lake", "load_seconds": "soon"})
    blocked = place.folder / "file"
    blocked.write_text("")
    wrong = [
        ("--config", bad),
        ("--config", place.write("unknown.json", {"destination": "delta:./x", "colour": 1})),
        ("--config", str(place.folder / "missing.json")),
        ("--to", "nowhere:./lake"),
        ("--to", f"delta:{blocked}/lake"),
        (),
        ("--as", "airbyte", "--to", "delta:./lake"),
    ]
    for words in wrong:
        answer = place.told("serve", "target", *words, stdin=tap(records=1))
        assert answer.returncode in (2, 5), (words, answer.stderr)
        assert answer.stdout == b"", words
        assert answer.stderr.strip(), words
        assert b"Traceback" not in answer.stderr, words


def test_a_large_input_is_read_in_bounded_memory(place: Place) -> None:
    """60 MB, several times what may wait, by a tap that never says STATE before its end."""
    served = place.target()
    text = "x" * 500
    wide = {"type": "object", "properties": {**SCHEMA["properties"], "text": {"type": "string"}}}
    served.feed(schema(schema=wide))
    line = '{{"type":"RECORD","stream":"s0","record":{{"id":{0},"seq":{0},"text":"{1}"}}}}'
    for first in range(0, 100_000, 10_000):
        lines = (line.format(n, text) for n in range(first, first + 10_000))
        served.feed("\n".join(lines).encode())
    served.feed(state(1))
    assert served.end() == 0, served.err
    assert served.states == [state(1)["value"]]
    assert place.seqs("s0") == list(range(100_000))
    assert place.report()["memory"]["python_peak_bytes"] < 900 << 20


# -- an Airbyte destination


def test_a_destination_answers_spec_and_check(place: Place) -> None:
    """Specification, Destination: spec and check; a check that fails is a status, not a failure."""
    spec = place.told("serve", "destination", "--as", "airbyte", "spec")
    told = json.loads(spec.stdout)["spec"]
    assert set(told["supported_destination_sync_modes"]) == {"append", "overwrite", "append_dedup"}
    assert told["connectionSpecification"]["required"] == ["destination"]
    blocked = place.folder / "file"
    blocked.write_text("")
    for settings, wanted in (
        ({"destination": "delta:./lake"}, "SUCCEEDED"),
        ({"destination": f"delta:{blocked}/lake"}, "FAILED"),
        ({"destination": "nowhere:./lake"}, "FAILED"),
        ({}, "FAILED"),
    ):
        config = place.write("check.json", settings)
        answer = place.told("serve", "destination", "check", "--config", config)
        assert answer.returncode == 0, answer.stderr
        status = json.loads(answer.stdout)["connectionStatus"]
        assert status["status"] == wanted
        assert ("message" in status) is (wanted == "FAILED")
    failed = place.told("serve", "destination", "write", "--config", config, "--catalog", config)
    trace = json.loads(failed.stdout)
    assert (failed.returncode, trace["trace"]["type"]) == (1, "ERROR")


def test_a_destination_takes_what_its_catalog_has_and_answers_every_state(place: Place) -> None:
    """Protocol, Destination: streams and fields beside the catalog are ignored, the rest is loaded;
    states in order for each stream, with what was taken and rejected of the records before each
    (L8). Two streams of one name differ by their namespace."""
    streams = [
        entry("s0", "overwrite", sync_mode="full_refresh"),
        entry("s1", "append_dedup", cursor_field=["seq"]),
        entry("s0", namespace="shop"),
    ]
    served = place.destination(streams)
    given = source(place.folder, streams[:2], records=100, schema=1)
    served.feed(given[:-1])
    served.feed(record("stranger", 1), record("s0", 1, "shop"), record("s0", 2, "shop"))
    shop = complete("s0")
    shop["trace"]["stream_status"]["stream_descriptor"]["namespace"] = "shop"
    broken = record("s0", 3, "shop")
    broken["record"]["data"] = [1]
    of_shop = stream_state("s0", 2)
    of_shop["state"]["stream"]["stream_descriptor"]["namespace"] = "shop"
    served.feed(b"not json", broken, of_shop, shop)
    assert served.end() == 0, served.err
    lines = [json.loads(line) for line in given.splitlines() if b'"STATE"' in line]
    for name in ("s0", "s1"):
        mine = [m for m in lines if m["state"]["stream"]["stream_descriptor"]["name"] == name]
        assert [m for m in as_sent(served.states) if m in mine] == mine
        assert counts(served.states, name) == (100, 0)
    assert counts(served.states, "s0", "shop") == (2, 1)
    assert len(served.states) == len(lines) + 1
    assert place.seqs("s0") == place.seqs("s1") == list(range(1, 101))
    assert place.seqs("shop/s0") == [1, 2]
    notes = place.report()["notes"]
    assert any("stream_not_configured:stranger" in note for note in notes), notes
    assert any("s0.name" in note for note in notes), notes


def test_l6_a_refresh_is_seen_once_it_is_complete_and_never_twice(place: Place) -> None:
    """A generation replaces the rows when its host says COMPLETE, keeps the newest of each key
    under append_dedup, and goes on from an acknowledged state without replacing what it brought."""
    third: Row = {"generation_id": 3, "minimum_generation_id": 3, "sync_id": 77}
    streams = [entry("s0", **third), entry("s1", "append_dedup", cursor_field=["seq"], **third)]
    first = place.destination(streams)
    for name in ("s0", "s1"):
        older = record(name, 1)
        newer = record(name, 2)
        newer["record"]["data"]["id"] = 1
        first.feed(older, newer, stream_state(name, 2), complete(name))
    assert first.end() == 0, first.err
    assert (place.seqs("s0"), place.seqs("s1")) == ([1, 2], [2])
    assert {s["state"]["id"] for s in first.states} == {2}
    goes_on = place.destination(streams)
    for name in ("s0", "s1"):
        goes_on.feed(record(name, 3), stream_state(name, 3), complete(name))
    assert goes_on.end() == 0, goes_on.err
    assert (place.seqs("s0"), place.seqs("s1")) == ([1, 2, 3], [2, 3])
    for table in ("s0", "s1"):
        numbers = [(r["_airbyte_generation_id"], r["_airbyte_meta"]) for r in place.rows(table)]
        assert {(n, meta["sync_id"]) for n, meta in numbers} == {(3, 77)}
    fourth: Row = {"generation_id": 4, "minimum_generation_id": 4}
    kept: Row = {"generation_id": 4, "minimum_generation_id": 0}
    died = place.destination([entry("s0", **fourth), entry("s1", **kept)])
    died.feed(record("s0", 9), stream_state("s0", 9), record("s1", 4), stream_state("s1", 4))
    assert died.end() == 1, died.err
    assert (place.seqs("s0"), place.seqs("s1")) == ([1, 2, 3], [2, 3, 4])
    numbers = {r["seq"]: r["_airbyte_generation_id"] for r in place.rows("s1")}
    assert numbers == {2: 3, 3: 3, 4: 4}, "a host's merge tells new rows from old"
    kinds = [(m["type"], m.get("trace", {}).get("type")) for m in died.states]
    assert kinds == [("STATE", None), ("TRACE", "ERROR")]
    assert as_sent(died.states)[0] == stream_state("s1", 4)
    assert "s0" in died.states[1]["trace"]["error"]["message"]


@pytest.mark.parametrize("place", ["parquet", "delta"], indirect=True)
def test_overwrite_holds_what_arrives_in_a_sync_also_of_increments(place: Place) -> None:
    """The catalog of PyAirbyte's smoke test: incremental and overwrite, of streams that offer
    full_refresh only, without a key or cursor; states may be absent. A source that dies leaves the
    table as it was (L6), and an empty stream empties it once it is complete."""
    nothing: Row = {"primary_key": None, "cursor_field": None}
    streams = [entry(name, "overwrite", namespace="smoke", **nothing) for name in ("s0", "CamelS1")]

    def served(*messages: Row, status: int = 0) -> Served:
        found = place.destination(streams)
        found.feed(*messages)
        assert found.end() == status, found.err
        return found

    def whole(name: str, status: str = "COMPLETE") -> Row:
        told = complete(name)
        told["trace"]["stream_status"]["stream_descriptor"]["namespace"] = "smoke"
        told["trace"]["stream_status"]["status"] = status
        return told

    def of(*seqs: int, stream: str = "s0") -> list[Row]:
        started, streamed = whole(stream, "STARTED"), [record(stream, n, "smoke") for n in seqs]
        return [started, *streamed]

    served(*of(1, 2), whole("s0"), *of(7, stream="CamelS1"), whole("CamelS1"))
    assert (place.seqs("smoke/s0"), place.seqs("smoke/CamelS1")) == ([1, 2], [7])
    served(*of(3), whole("s0"), *of(stream="CamelS1"), whole("CamelS1"))
    assert (place.seqs("smoke/s0"), place.seqs("smoke/CamelS1")) == ([3], [])
    served(*of(4), *of(8, stream="CamelS1"), whole("CamelS1"), status=1)
    assert (place.seqs("smoke/s0"), place.seqs("smoke/CamelS1")) == ([3], [8])


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(600)
@in_delta
def test_the_smoke_test_of_pyairbyte_passes(place: Place, tmp_path: Path) -> None:
    """All scenarios of ``pyab destination-smoke-test``, by the script of docs/cli.md."""
    python = tmp_path / "pyairbyte"
    run = partial(subprocess.run, check=True, capture_output=True, timeout=300, cwd=tmp_path)
    run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(python)])
    run([find_uv_bin(), "pip", "install", "--quiet", "--python", str(python), "airbyte==0.71.3"])
    script = tmp_path / "destination-penstock"
    command = forked_cli.folder_of_script() / "penstock"
    script.write_text(
        f'#!/bin/sh\nexec {command} serve destination --as airbyte --home {place.home} "$@"\n'
    )
    script.chmod(0o755)
    told = subprocess.run(
        [
            str(python / "bin/pyab"), "destination-smoke-test", f"--destination={script}",
            f'--config={{"destination": "delta:{place.lake}"}}', "--scenarios=all",
            "--reuse-namespace=smoke",
        ],
        capture_output=True,
        env={**place.environ, "PATH": f"{python / 'bin'}:{place.environ['PATH']}",
             "AIRBYTE_OFFLINE_MODE": "1"},
        cwd=tmp_path,
        timeout=500,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    tables = {path.parent.name for path in (place.lake / "smoke").glob("*/_delta_log")}
    assert len(tables) >= 15, tables
    assert place.report()["status"] == "succeeded"


@pytest.mark.network
def test_faker_outside_penstock_feeds_a_destination(
    place: Place, connector_environments: Path
) -> None:
    """The real source-faker, by its own command: discover, read, and all that it says to us."""
    place.home.mkdir(parents=True, exist_ok=True)
    (place.home / "connectors").symlink_to(connector_environments)
    added = place.told("add", "airbyte:source-faker@7.2.1", "--json")
    assert added.returncode == 0, added.stderr
    (faker,) = (place.home / "connectors").rglob("bin/source-faker")
    config = place.write("faker.json", {"count": 200, "seed": 1, "parallelism": 1})
    asked = subprocess.run(
        [str(faker), "discover", "--config", config], capture_output=True, timeout=120
    )
    (found,) = (
        m["catalog"]["streams"]
        for line in asked.stdout.splitlines()
        if line.startswith(b"{") and (m := json.loads(line))["type"] == "CATALOG"
    )
    streams = [
        {
            "stream": stream,
            "sync_mode": "incremental",
            "cursor_field": stream.get("default_cursor_field") or ["updated_at"],
            "destination_sync_mode": "append_dedup",
            "primary_key": stream["source_defined_primary_key"],
        }
        for stream in found
    ]
    catalog = place.write("faker-catalog.json", {"streams": streams})
    read = [str(faker), "read", "--config", config, "--catalog", catalog]
    given = subprocess.run(read, capture_output=True, timeout=120).stdout
    served = place.destination(streams)
    served.feed(given[:-1])
    assert served.end() == 0, served.err
    states = [json.loads(x) for x in given.splitlines() if x.startswith(b"{")]
    states = [m for m in states if m["type"] == "STATE"]
    assert sorted(map(json.dumps, as_sent(served.states))) == sorted(map(json.dumps, states))
    assert counts(served.states, "users") == (200, 0)
    assert len(place.rows("users")) == 200
    assert len(place.rows("products")) == 100
    assert place.report()["status"] == "succeeded"


# -- both halves of our connector role


@pytest.mark.parametrize("way", ["target", "destination"])
def test_penstock_feeds_penstock(place: Place, way: str) -> None:
    """Any source into any destination, where the destination is another Penstock: a connector's
    environment is clean, so that its home, and that it may share a Spark, stand in its command."""
    shared = {**warm_spark.environ(), "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"]}
    script = shlex.join(["env", *(f"{k}={v}" for k, v in shared.items()), str(SCRIPT)])
    settings = json.dumps({"destination": f"parquet:{place.lake}"})
    if way == "target":
        given = f"airbyte:{stub('stub_source.py', '--with', json.dumps({'records': 50}))}"
        into = f"singer:{script} serve target --as singer --home {place.home}"
    else:
        given = f"singer:{stub('stub_tap.py', '--with', json.dumps({'records': 50}))}"
        into = f"airbyte:{script} serve destination --as airbyte --home {place.home}"
    ran = place.told(
        "run", given, into, "--destination-config", settings, "--name", "outer", "--json"
    )
    report = json.loads(ran.stdout)
    assert report["status"] == "succeeded", (report["error"], ran.stderr)
    assert place.seqs("s0") == place.seqs("s1") == list(range(1, 51))
    for stream in report["streams"]:
        assert (stream["read"], stream["committed"], stream["status"]) == (50, 50, "complete")
        assert stream["states"] >= 1

"""Schemas, records and states that are nested as deeply as JSON may be: read where they can be, in
columns of JSON text below the depth of columns; else one error that says so. No lane dies of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

from penstock.errors import PenstockError
from penstock.tables.contract import TableName

pytestmark = pytest.mark.dear

AIRBYTE = """
out = lambda text: print(text, flush=True)
deep = lambda n: '{"type":"object","properties":{"a":' * n + '{"type":"string"}' + "}}" * n
value = lambda n: '{"a":' * n + '"x"' + "}" * n
known = '{"id":{"type":"integer"},"d":' + deep(WORLD["schema"]) + "}"
schema = '{"type":"object","properties":' + known + "}"
state = '{"at":' + value(WORLD["state"]) + "}"
spec = '{"type":"object","properties":{"x":' + deep(WORLD.get("spec", 0)) + "}}"
rows = ['{"id":1,"d":null}', '{"id":2,"d":' + value(WORLD["record"]) + "}"]
"""
SPEAKS = {
    "airbyte": AIRBYTE
    + """
command = sys.argv[1]
if command == "spec":
    out('{"type":"SPEC","spec":{"connectionSpecification":' + spec + "}}")
elif command == "check":
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif command == "discover":
    out('{"type":"CATALOG","catalog":{"streams":[{"name":"s","supported_sync_modes":'
        '["full_refresh","incremental"],"source_defined_cursor":true,"default_cursor_field":["id"],'
        '"json_schema":' + schema + "}]}}")
else:
    for row in rows:
        out('{"type":"RECORD","record":{"stream":"s","emitted_at":1,"data":' + row + "}}")
    out('{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"s"},'
        '"stream_state":' + state + "}}}")
    say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1, "stream_status":
         {"stream_descriptor": {"name": "s"}, "status": "COMPLETE"}}})
""",
    "singer": AIRBYTE
    + """
if "--discover" in sys.argv:
    out('{"streams":[{"tap_stream_id":"s","stream":"s","schema":' + schema +
        ',"metadata":[{"breadcrumb":[],"metadata":{"selected":true}}]}]}')
elif "--config" in sys.argv or "--catalog" in sys.argv:
    out('{"type":"SCHEMA","stream":"s","key_properties":[],"schema":' + schema + "}")
    for row in rows:
        out('{"type":"RECORD","stream":"s","record":' + row + "}")
    out('{"type":"STATE","value":' + state + "}")
else:
    sys.exit(1)
""",
}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def depth(value: Any) -> int:
    """How many objects are around the text ``x``, in columns and in the JSON text below them."""
    levels = 0
    while value != "x":
        value = json.loads(value) if isinstance(value, str) else value["a"]
        levels += isinstance(value, dict) or value == "x"
    return levels


@pytest.mark.parametrize("protocol", SPEAKS)
@pytest.mark.parametrize("levels", [40, 300, 400])
def test_L8_a_schema_of_many_objects_inside_each_other_is_read(
    bench: Bench, protocol: str, levels: int
) -> None:
    bench.set(schema=levels, record=levels, state=levels)
    report = bench.run(bench.connector(SPEAKS[protocol], protocol))
    assert (report.exit_code, report.streams[0].committed) == (0, 2), report.error
    rows = {row["id"]: row["d"] for row in bench.tables.rows[TableName(None, "s")]}
    assert rows[1] is None and depth(rows[2]) == levels
    assert bench.run(bench.connector(SPEAKS[protocol], protocol)).exit_code == 0  # with its state


@pytest.mark.parametrize("protocol", SPEAKS)
def test_a_schema_that_cannot_be_read_is_refused_by_its_depth(bench: Bench, protocol: str) -> None:
    bench.set(schema=10_000, record=1, state=1)
    with pytest.raises(PenstockError) as caught:
        bench.run(bench.connector(SPEAKS[protocol], protocol))
    assert (caught.value.code, caught.value.exit_code) == ("source.too_deep", 4)
    assert "nested too deeply" in caught.value.message


def test_a_spec_that_cannot_be_read_is_refused_by_its_depth(bench: Bench) -> None:
    bench.set(schema=1, record=1, state=1, spec=10_000)
    with pytest.raises(PenstockError) as caught:
        bench.run(bench.connector(SPEAKS["airbyte"], "airbyte"))
    assert caught.value.code == "source.too_deep"


@pytest.mark.parametrize("protocol", SPEAKS)
def test_L8_a_record_that_cannot_be_read_is_rejected_alone(bench: Bench, protocol: str) -> None:
    bench.set(schema=3, record=10_000, state=3)
    report = bench.run(bench.connector(SPEAKS[protocol], protocol))
    (stream,) = report.streams
    assert (stream.read, stream.committed, stream.rejected) == (2, 1, 1), report.error


@pytest.mark.parametrize("protocol", SPEAKS)
def test_L1_a_state_that_is_nested_deeply_never_ends_in_a_defect(
    bench: Bench, protocol: str
) -> None:
    """Saved as it came, or not at all, which is said: in no case is a row lost."""
    bench.set(schema=1, record=1, state=10_000)
    use = bench.connector(SPEAKS[protocol], protocol)
    for _ in range(2):
        report = bench.run(use)
        assert report.exit_code != 70, report.error
        assert report.streams[0].committed == 2, report.error

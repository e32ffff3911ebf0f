"""L1, L8: a source that changes the type of its state between runs, as a new version may.

The source reads whatever it kept before, and sends its new form. Rows are counted under append,
where a stream that is read again has its rows twice.
"""

from pathlib import Path
from typing import Any

import pytest
from quick_runs import Bench

pytestmark = pytest.mark.dear

# ``rows``: stream -> how many there are; ``kind``: the type of the states that it sends;
# ``beside``: what a GLOBAL one has beside its streams.
SOURCE = """
properties = {"number": {"type": "integer"}}
if "spec" in sys.argv:
    say({"type": "SPEC", "spec": {"connectionSpecification": {}}})
elif "check" in sys.argv:
    say({"type": "CONNECTION_STATUS", "connectionStatus": {"status": "SUCCEEDED"}})
elif "discover" in sys.argv:
    say({"type": "CATALOG", "catalog": {"streams": [
        {"name": name, "json_schema": {"properties": properties},
         "supported_sync_modes": ["incremental", "full_refresh"], "source_defined_cursor": True,
         "default_cursor_field": ["number"]} for name in WORLD["rows"]]}})
else:
    asked = [one["stream"]["name"] for one in given("--catalog")["streams"]]
    state = given("--state") or []
    last = dict(state) if isinstance(state, dict) else {}
    for one in [] if isinstance(state, dict) else state:
        for entry in one["global"]["stream_states"] if one["type"] == "GLOBAL" else [one["stream"]]:
            last[entry["stream_descriptor"]["name"]] = (entry["stream_state"] or {}).get("last", 0)
    def entry(name):
        return {"stream_descriptor": {"name": name}, "stream_state": {"last": last[name]}}
    for name in asked:
        for number in range(last.get(name, 0) + 1, WORLD["rows"][name] + 1):
            say({"type": "RECORD", "record": {"stream": name, "data": {"number": number},
                "emitted_at": 1}})
        last[name] = WORLD["rows"][name]
        told = [n for n in asked if n in last]
        if WORLD["kind"] == "STREAM":
            say({"type": "STATE", "state": {"type": "STREAM", "stream": entry(name)}})
        elif WORLD["kind"] == "GLOBAL":
            say({"type": "STATE", "state": {"type": "GLOBAL", "global":
                {"stream_states": [entry(n) for n in told], **WORLD.get("beside", {})}}})
        else:
            say({"type": "STATE", "state": {"data": {n: last[n] for n in told}}})
        say({"type": "TRACE", "trace": {"type": "STREAM_STATUS", "emitted_at": 1.0, "stream_status":
            {"stream_descriptor": {"name": name}, "status": "COMPLETE"}}})
"""

APPEND = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append"}}
LOG = {"shared_state": {"position": 9}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def sync(bench: Bench, orders: int, kind: str, *streams: str, **world: Any) -> list[str]:
    """One run; its notes, but for that of increments which are appended."""
    bench.set(rows={"orders": orders, "clicks": 2}, kind=kind, **world)
    source: dict[str, Any] = {**APPEND, **({"streams": list(streams)} if streams else {})}
    report = bench.run(bench.connector(SOURCE, "airbyte"), source=source)
    assert report.status == "succeeded", report.error
    return [note for note in report.notes if not note.startswith("at-least-once: ")]


def numbers(bench: Bench, table: str) -> list[int]:
    return bench.ids(table, "number")


@pytest.mark.parametrize("beside", [{}, LOG], ids=["apart", "log"])
@pytest.mark.parametrize("new", ["STREAM", "GLOBAL", "LEGACY"])
@pytest.mark.parametrize("old", ["STREAM", "GLOBAL", "LEGACY"])
def test_L8_the_rows_go_on_where_the_old_state_was(
    bench: Bench, old: str, new: str, beside: dict[str, Any]
) -> None:
    assert sync(bench, 3, old, beside=beside) == []
    notes = [n for n in sync(bench, 5, new, beside=beside) if "the source's state was" in n]
    assert len(notes) == (old != new)
    assert not sync(bench, 6, new, beside=beside)
    assert numbers(bench, "orders") == [1, 2, 3, 4, 5, 6]
    assert numbers(bench, "clicks") == [1, 2]
    assert {s.scope.type.value for s in bench.states()} == {new}


@pytest.mark.parametrize(("old", "new"), [("STREAM", "GLOBAL"), ("GLOBAL", "STREAM")])
def test_L8_a_stream_that_was_not_read_meanwhile_keeps_its_position(
    bench: Bench, old: str, new: str
) -> None:
    sync(bench, 3, old)
    sync(bench, 5, new, "orders")
    sync(bench, 6, new)
    assert numbers(bench, "orders") == [1, 2, 3, 4, 5, 6]
    assert numbers(bench, "clicks") == [1, 2]
    assert {s.scope.type.value for s in bench.states()} == {new}


def test_L8_nothing_is_lost_of_a_stream_whose_position_cannot_be_told_apart(bench: Bench) -> None:
    """Only the source knows what of a LEGACY state is whose: the note says what follows."""
    sync(bench, 3, "LEGACY")
    (note,) = sync(bench, 5, "STREAM", "orders")
    assert "was LEGACY and is now STREAM" in note and "read from the start" in note
    assert "if it could not read it, it began at its start" in note
    sync(bench, 6, "STREAM")
    assert numbers(bench, "orders") == [1, 2, 3, 4, 5, 6]
    assert numbers(bench, "clicks") == [1, 1, 2, 2]

"""L1, L6: a refresh (``--recreate``) that waits while other streams are read, or that was given up.

Each source is written from a public report. Runs without Spark (``quick_runs``).
"""

from pathlib import Path

import pytest
from quick_runs import Bench

from penstock.config.pipeline import StreamOptions
from penstock.engine.inspect import states
from penstock.errors import ConfigError
from penstock.model.report import Report

# A tap whose bookmarks have names that its catalog does not know: of a repository, in which each
# stream has its own (tap-github). ``dies``: [stream, row] after which it ends with exit code 1.
TAP = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    say({"streams": [{"tap_stream_id": name, "stream": name, "schema": schema,
        "key_properties": ["id"], "metadata": [{"breadcrumb": [], "metadata":
        {"replication-method": "INCREMENTAL", "replication-key": "id",
         "valid-replication-keys": ["id"]}}]} for name in ("a", "b", "c")]}); sys.exit(0)
if "--about" in sys.argv or "--help" in sys.argv: sys.exit(2)
marks = dict(((given("--state") or {}).get("bookmarks") or {}).get("org/repo") or {})
asked = [one["stream"] for one in given("--catalog")["streams"] if any(
    m["breadcrumb"] == [] and m["metadata"].get("selected") for m in one["metadata"])]
for name in asked:
    say({"type": "SCHEMA", "stream": name, "schema": schema, "key_properties": ["id"]})
    for number in range(marks.get(name, 0) + 1, WORLD[name] + 1):
        say({"type": "RECORD", "stream": name, "record": {"id": number}})
        if WORLD.get("dies") == [name, number]: sys.exit(1)
        marks[name] = number
    say({"type": "STATE", "value": {"bookmarks": {"org/repo": marks}}})
"""
UPSERT = {"defaults": {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def recreate(bench: Bench, use: str, stream: str) -> Report:
    return bench.run(use, source={**UPSERT, "streams": [stream]}, recreate=True)


@pytest.mark.parametrize("refreshed", [["a"], ["a", "b"]])
def test_a_run_without_a_stream_whose_refresh_is_pending_says_so(
    bench: Bench, refreshed: list[str]
) -> None:
    """No state is saved, so only the read shows that the one of this tap cannot be taken apart."""
    tap = bench.connector(TAP)
    for one in refreshed:
        bench.set(a=3, b=3, c=3, dies=[one, 2])
        assert recreate(bench, tap, one).exit_code == 4
    bench.set(a=3, b=3, c=3)
    report = bench.run(tap, source={**UPSERT, "streams": ["c"]})
    assert report.error is not None
    assert (report.exit_code, report.error["code"]) == (2, "config.refresh_pending")
    for one in refreshed:
        assert f"--cancel-refresh {one}`" in (report.error["hint"] or "")
    with pytest.raises(ConfigError) as refused:  # what it sealed has shown it: nothing is read
        bench.run(tap, source={**UPSERT, "streams": ["c"]})
    assert refused.value.code == "config.refresh_pending"
    assert bench.run(tap, source=UPSERT).exit_code == 0
    assert [bench.ids(s) for s in ("a", "b", "c")] == [[1, 2, 3]] * 3


def test_one_of_two_refreshes_alone_waits_for_the_other(bench: Bench) -> None:
    tap = bench.connector(TAP)
    for one in ("a", "b"):
        bench.set(a=3, b=3, c=3, dies=[one, 2])
        assert recreate(bench, tap, one).exit_code == 4
    bench.set(a=3, b=3, c=3)
    report = bench.run(tap, source={**UPSERT, "streams": ["a"]})
    assert report.error is not None
    assert (report.exit_code, report.error["code"]) == (2, "config.refresh_pending")
    assert "the refresh of b is pending" in report.error["message"]
    with bench.known() as known:
        states.cancel_refresh(known, StreamOptions(name="b"))
    report = bench.run(tap, source={**UPSERT, "streams": ["a"]})
    assert (report.exit_code, bench.ids("a")) == (0, [1, 2, 3])

"""An installed source is asked for its streams once a day and configuration, and again where what
it said then does not do."""

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from quick_runs import Bench

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.pipeline import Pipeline
from penstock.connectors import discovery_cache
from penstock.connectors.environments import Environment, Installed
from penstock.connectors.launch import Launch
from penstock.connectors.reference import parse_ref
from penstock.connectors.source import SourceConnector
from penstock.engine.plan import open_source
from penstock.engine.plan.prepare import Prepared, prepare
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError
from penstock.protocols import load
from penstock.store.memory import MemoryStore
from penstock.tables.memory import MemoryTables

STUB = Path(__file__).parents[2] / "stubs" / "stub_source.py"
LOCK = Environment(
    protocol="airbyte", package="p", version="1", key="k", lock="", python="3.11",
    script="python", folder="",
)  # fmt: skip

Run = Callable[..., Prepared]


class Site:
    """A pipeline whose source is the stub, as if it had been installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, MemoryStore()
        self.entry = Installed(
            name="stub", environment=LOCK, path=str(folder / "environment"), built_at=""
        )
        (folder / "environment").mkdir()
        self.streams = 2

    def pipeline(self, **options: str) -> Pipeline:
        return pipeline_from_arguments("airbyte:./stub", "parquet:./lake", **options)

    def source(self, pipeline: Pipeline) -> SourceEndpoint:
        given = {"streams": self.streams, "journal": str(self.folder / "journal")}
        command = (sys.executable, str(STUB), "--with", json.dumps(given))
        launch = Launch(protocol="airbyte", command=command, cwd=str(self.folder))

        def connect(log: object) -> SourceConnector:
            del log
            return SourceConnector(
                parse_ref("airbyte:./stub"), load("airbyte"), launch, entry=self.entry
            )

        save = lambda new: None  # noqa: E731
        return SourceEndpoint(pipeline, connect, self.store, NullObserver(), save=save)

    def prepare(self, *, refresh: bool = False, **options: str) -> tuple[SourceEndpoint, Prepared]:
        pipeline = self.pipeline(**options)
        source = self.source(pipeline)
        tables = MemoryTables(lambda part: [])
        return source, prepare(pipeline, source, tables, self.store, refresh=refresh)

    def asked(self) -> int:
        lines = (self.folder / "journal").read_text().splitlines()
        return sum(json.loads(line)["command"] == "discover" for line in lines)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def names(prepared: Prepared) -> list[str]:
    return [s.id.name for s in prepared.plan.streams]


def test_a_source_is_asked_once_a_day(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, prepared = site.prepare()
    assert first.cached_at is None and names(prepared) == ["s0", "s1"]
    second, prepared = site.prepare()
    assert second.cached_at is not None and names(prepared) == ["s0", "s1"]
    assert site.asked() == 1
    later = time.time() + discovery_cache.MAX_AGE + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert site.prepare()[0].cached_at is None
    assert site.asked() == 2


def test_another_configuration_is_asked_for_itself(site: Site) -> None:
    site.prepare(config='{"start": 1}')
    assert site.prepare(config='{"start": 2}')[0].cached_at is None
    assert site.prepare(config='{"start": 1}')[0].cached_at is not None


def test_refresh_asks_anew_and_is_kept(site: Site) -> None:
    site.prepare()
    site.streams = 3
    assert names(site.prepare()[1]) == ["s0", "s1"]
    assert names(site.prepare(refresh=True)[1]) == ["s0", "s1", "s2"]
    assert names(site.prepare()[1]) == ["s0", "s1", "s2"]


def test_a_stream_that_the_kept_catalog_lacks_is_asked_for(site: Site) -> None:
    site.prepare()
    site.streams = 3
    source, prepared = site.prepare(streams="s2")
    assert source.cached_at is None and names(prepared) == ["s2"]
    with pytest.raises(ConfigError) as caught:
        site.prepare(streams="s9")
    assert "unknown stream 's9'" in caught.value.problems[0]


def test_fields_that_it_lacks_end_it_unless_the_source_never_declares_them(site: Site) -> None:
    """A source that sends `user.email` in each run and never declares it is asked once a day."""
    assert not site.prepare()[0].drifted({"s0.x"})  # it has just been asked
    assert not site.prepare()[0].drifted({"s0.x"})
    cached = site.prepare()[0]
    assert cached.cached_at is not None and cached.drifted({"s0.x", "s0.y"})
    assert site.prepare()[0].cached_at is None
    cached = site.prepare()[0]
    assert cached.cached_at is not None and not cached.drifted({"s0.x", "s0.y"})
    assert site.asked() == 2


def test_names_that_are_data_do_not_fill_it(site: Site) -> None:
    for run in range(4):
        site.prepare()[0].drifted({f"s0.{run}.{n}" for n in range(discovery_cache.MAX_LACKS - 5)})
    (file,) = (site.folder / "environment" / "discovered").iterdir()
    assert len(json.loads(file.read_bytes())["lacks"]) < discovery_cache.MAX_LACKS


def test_it_can_be_forgotten(site: Site) -> None:
    source, _ = site.prepare()
    source.forget_catalog()
    assert site.prepare()[0].cached_at is None


def test_it_is_the_users_own_and_a_broken_file_is_no_answer(site: Site) -> None:
    site.prepare()
    (file,) = (site.folder / "environment" / "discovered").iterdir()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    file.write_bytes(b"{")
    assert site.prepare()[0].cached_at is None


def test_a_local_command_is_always_asked(site: Site) -> None:
    site.entry = None  # type: ignore[assignment]
    site.prepare()
    site.prepare()
    assert site.asked() == 2


TAP = """
keyed = {"key_properties": WORLD["key"]}
schema = {"type": "object", "properties": {"id": {"type": "integer"}, "of": {"type": "integer"}}}
stream = {"tap_stream_id": "users", "stream": "users", "schema": schema, **keyed}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [stream]}))
elif "--about" not in sys.argv:
    say({"type": "SCHEMA", "stream": "users", "schema": schema, **keyed})
    for of in (1, 2):
        say({"type": "RECORD", "stream": "users", "record": {"id": 7, "of": of}})
    say({"type": "STATE", "value": {"users": 1}})
"""


def test_another_key_in_the_read_holds_at_once_is_said_and_ends_the_kept_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the old key two rows would be one for a day."""
    bench = Bench(tmp_path, monkeypatch)
    entry = Installed(name="t", environment=LOCK, path=str(tmp_path / "environment"), built_at="")
    (tmp_path / "environment").mkdir()
    real = open_source.resolve

    def installed(*given: Any, **more: Any) -> SourceConnector:
        source = real(*given, **more)
        source._entry = entry
        return source

    monkeypatch.setattr(open_source, "resolve", installed)
    modes = {"sync_mode": "incremental", "destination_sync_mode": "append_dedup"}
    tap = bench.connector(TAP)
    bench.set(key=["id"])
    assert bench.run(tap, source={"defaults": modes}).exit_code == 0
    assert bench.ids("users") == [7]
    bench.set(key=["id", "of"])
    report = bench.run(tap, source={"defaults": modes})
    assert report.exit_code == 0
    (said,) = [n for n in report.notes if "primary key" in n]
    assert said.startswith("users: the source says that its primary key is id, of, and its catalog")
    assert "said id:" in said
    assert bench.ids("users") == [7, 7]
    assert list((tmp_path / "environment" / "discovered").iterdir()) == []
    report = bench.run(tap, source={"defaults": modes})
    assert not [n for n in report.notes if "primary key" in n]


def test_another_lock_is_another_environment_and_is_asked(site: Site, tmp_path: Path) -> None:
    site.prepare()
    site.entry = msgspec.structs.replace(site.entry, path=str(tmp_path / "1-other"))
    (tmp_path / "1-other").mkdir()
    assert site.prepare()[0].cached_at is None
    assert site.asked() == 2

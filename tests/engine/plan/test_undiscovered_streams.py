"""Streams that a file names and its source does not tell of: v4's host never discovers, so that its
files name what a source reads without listing it (its Postgres source: views)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from memory_tables import MemoryTables
from penstock.config.load import parse_pipeline
from penstock.connectors.launch import Launch
from penstock.connectors.reference import parse_ref
from penstock.connectors.source import SourceConnector
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.prepare import Prepared, prepare
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import SyncMode
from penstock.protocols import load
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import digest_of
from penstock.store.memory import MemoryStore

sys.path.append(str(Path(__file__).parents[2] / "protocols" / "rapidbyte"))

import rapidbyte_guests

FILE = """
version: "1.0"
pipeline: p
source:
  use: %s
  config: { catalog: "%s" }
  streams:
    - { name: told, sync_mode: full_refresh }
    - { name: a view, sync_mode: incremental, cursor_field: at }
destination: { use: dest-postgres, config: {}, write_mode: append }
"""
COLUMN = {"name": "id", "data_type": "Int64", "nullable": True}
TOLD = {"name": "told", "schema": [COLUMN], "supported_sync_modes": ["full_refresh"]}


def planned(folder: Path, use: str) -> Prepared:
    catalog = json.dumps({"streams": [TOLD]}).encode().hex()
    pipeline = parse_pipeline(FILE % (use, catalog), {})
    file = folder / "source.wasm"
    file.write_bytes(rapidbyte_guests.c_guest("source", "script.c"))
    cache = str(rapidbyte_guests.CACHE / "compiled")
    component = Component(path=str(file), digest=digest_of(file.read_bytes()), cache=cache)
    launch = Launch(protocol="rapidbyte", component=component)

    def connect(log: object) -> SourceConnector:
        del log
        return SourceConnector(parse_ref("./source.wasm"), load("rapidbyte"), launch)

    store = MemoryStore()
    source = SourceEndpoint(pipeline, connect, store, NullObserver(), save=lambda new: None)
    return prepare(pipeline, source, TableDestination(MemoryTables(lambda part: [])), store)


def test_a_v4_file_may_name_streams_that_its_source_does_not_tell(tmp_path: Path) -> None:
    prepared = planned(tmp_path, "source-x")
    told, view = prepared.plan.streams
    assert not told.configured.stream.assumed
    assert view.id.name == "a view" and view.configured.sync_mode is SyncMode.incremental
    assert view.configured.cursor_field == ("at",)
    (note,) = (n for n in prepared.plan.notes if "does not list" in n)
    assert note.startswith("a view: ")


def test_in_any_other_file_such_a_name_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, "./source.wasm")
    (problem,) = refused.value.problems
    assert "unknown stream 'a view'" in problem


def answers(code: str, **more: Any) -> SourceError:
    own = {"category": "internal", "code": code, "retryable": False, "host_fault": None}
    return SourceError("the source failed: no", code="connector.failed", connector=own | more)


def fails(monkeypatch: pytest.MonkeyPatch, error: SourceError) -> None:
    def discover(*_: object) -> None:
        raise error

    monkeypatch.setattr(SourceConnector, "discover", discover)


def test_a_v4_file_is_run_whatever_its_source_answers_to_discover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 3: ``discover`` is optional, and no code is set for a connector that has none."""
    fails(monkeypatch, answers("no_catalog_here"))
    prepared = planned(tmp_path, "source-x")
    assert [s.id.name for s in prepared.plan.streams] == ["told", "a view"]
    assert all(s.configured.stream.assumed for s in prepared.plan.streams)
    (note,) = (n for n in prepared.plan.notes if "cannot be discovered" in n)
    assert "the source failed: no" in note


@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("./source.wasm", answers("no_catalog_here")),
        ("source-x", answers("refused", retryable=True)),
        ("source-x", answers("no", host_fault={"code": "denied"})),
        ("source-x", SourceError("it was ended", connector={"trap": "timeout"})),
        ("source-x", SourceError("it did not answer")),
    ],
)
def test_any_other_failure_of_discover_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str, error: SourceError
) -> None:
    fails(monkeypatch, error)
    with pytest.raises(SourceError):
        planned(tmp_path, use)

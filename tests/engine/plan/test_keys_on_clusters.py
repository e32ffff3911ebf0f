"""Connectors that keep keys of their own, on a cluster (L10: refused, never ignored)."""

from pathlib import Path

import pytest

from penstock.config.load import load_pipeline
from penstock.config.protocol_spec import specs
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.unsupported import refused
from penstock.tables.formats import open_table


def test_the_protocols_that_keep_keys() -> None:
    assert {name for name, spec in specs().items() if spec.keeps_keys} == {"rapidbyte", "syncmaven"}


@pytest.mark.parametrize(
    ("source", "destination", "state", "keepers"),
    [
        ("airbyte:./source", "syncmaven:./to", "", "destination"),
        ("rapidbyte:./from.wasm", "syncmaven:./to", "", "source, destination"),
        ("rapidbyte:./from.wasm", "syncmaven:./to", "postgres", None),
        ("airbyte:./source", "singer:./target", "", None),
    ],
)
def test_a_store_that_workers_do_not_reach_is_refused(
    tmp_path: Path, source: str, destination: str, state: str, keepers: str | None
) -> None:
    path = tmp_path / "pipeline.yaml"
    kept = "state: {backend: postgres, connection: 'postgresql://x/y'}\n" if state else ""
    path.write_text(
        f"pipeline: keys\nsource: {{use: '{source}'}}\ndestination: {{use: '{destination}'}}\n"
        f"spark: {{master: 'spark://there:7077'}}\n{kept}"
    )
    problems = refused(load_pipeline(path, env={}), TableDestination(open_table("parquet", "lake")))
    found = [p for p in problems if "keys of its own" in p]
    assert found == (
        []
        if keepers is None
        else [
            f"{keepers} may keep keys of its own in the state store, which every worker of a"
            " cluster must reach: set state.backend: postgres"
        ]
    )

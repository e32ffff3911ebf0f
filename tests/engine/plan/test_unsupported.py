"""``engine.plan.unsupported``: what a pipeline asks for and nobody enforces is refused (L10)."""

import json
from pathlib import Path

import pytest

from penstock.config.load import load_pipeline, parse_pipeline
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.destination_endpoint import DestinationEndpoint
from penstock.engine.plan.unsupported import permissions_asked, refused
from penstock.tables.parquet.tables import ParquetTables

TABLES = TableDestination(ParquetTables.__new__(ParquetTables))
HEAD = "pipeline: p\nsource: { use: airbyte:source-x }\n"


def test_l10_nullability_that_nobody_enforces_is_refused() -> None:
    text = HEAD + "destination: { use: 'parquet:./lake', schema_evolution: {%s} }\n"
    _, _, problems = permissions_asked(parse_pipeline(text % "nullability_change: fail", {}))
    assert len(problems) == 1 and "nullability_change: fail cannot be" in problems[0]
    assert permissions_asked(parse_pipeline(text % "nullability_change: allow", {}))[2] == []
    frames = (text % "nullability_change: fail").replace("airbyte:source-x", "./x.wasm")
    assert frames != text % "nullability_change: fail"
    assert permissions_asked(parse_pipeline(frames, {}))[2] == []


@pytest.mark.parametrize(
    ("use", "told"),
    [("./x.wasm", True), ("dest-x", True), ("singer:target-x", False), ("airbyte:dest-x", False)],
)
def test_only_a_component_is_told_what_to_do_with_a_changed_schema(use: str, told: bool) -> None:
    """v4's interface carries it (the stream context's policies); no other protocol's does."""
    text = HEAD + f"destination: {{ use: '{use}', schema_evolution: {{ type_change: fail }} }}\n"
    place = DestinationEndpoint.__new__(DestinationEndpoint)
    problems = [p for p in refused(parse_pipeline(text, {}), place) if "schema_evolution" in p]
    assert bool(problems) is not told
    other = text.replace("schema_evolution: { type_change: fail }", "deletes: soft")
    assert any("deletes" in p for p in refused(parse_pipeline(other, {}), place))


def test_l10_permissions_of_a_table_are_refused_by_the_names_of_the_page() -> None:
    """Rapidbyte, "Pipeline-Level Permissions & Limits": ``allowed_hosts``, ``allowed_vars``,
    ``allowed_preopens``."""
    permissions = "network: {allowed_hosts: [a.b], allow_private: true}, env: {allowed_vars: []}"
    text = HEAD + f"destination: {{ use: 'parquet:./lake', permissions: {{ {permissions} }} }}\n"
    problems = refused(parse_pipeline(text, {}), TABLES)
    assert problems == [
        f"destination.permissions.{name} cannot be carried out yet"
        for name in ("network.allowed_hosts", "env.allowed_vars", "network.allow_private")
    ]
    empty = text.replace(permissions, "")
    assert refused(parse_pipeline(empty, {}), TABLES) == []


@pytest.mark.parametrize(
    "use", ["airbyte:source-faker", "singer:tap-x", "airbyte:docker:x/y:1", "./x.wasm"]
)
def test_a_file_of_another_folder_may_name_any_connector(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connector of a file runs in the file's folder; a folder that a user writes is for
    connectors that are processes of this machine."""
    document = {
        "pipeline": "p",
        "source": {"use": use},
        "destination": {"use": "parquet:./lake"},
    }
    (tmp_path / "there" / "else").mkdir(parents=True)
    (tmp_path / "there" / "p.yaml").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    found = load_pipeline("there/p.yaml")
    assert found.source.folder == f"{tmp_path}/there"
    assert refused(found, TABLES) == []
    document["source"] = {"use": use, "folder": "./else"}
    (tmp_path / "there" / "p.yaml").write_text(json.dumps(document))
    problems = refused(load_pipeline("there/p.yaml"), TABLES)
    is_process = not use.endswith((":1", ".wasm"))
    assert [("source.folder" in problem) for problem in problems] == ([] if is_process else [True])

"""A configuration or a stream whose schema leads back to itself, by ``$ref``: every verb that reads
it ends, with an answer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_harness import Cli

pytestmark = pytest.mark.timeout(300)

CONNECTOR = """
import json, sys
from pathlib import Path
SCHEMA = json.loads(Path(__file__).with_suffix(".json").read_text())
STREAM = {"name": "rows", "json_schema": SCHEMA, "supported_sync_modes": ["full_refresh"]}
verb = sys.argv[1]
if verb == "spec":
    print(json.dumps({"type": "SPEC", "spec": {"connectionSpecification": SCHEMA}}))
elif verb == "check":
    status = {"status": "SUCCEEDED", "message": ""}
    print(json.dumps({"type": "CONNECTION_STATUS", "connectionStatus": status}))
elif verb == "discover":
    print(json.dumps({"type": "CATALOG", "catalog": {"streams": [STREAM]}}))
"""


def circles() -> dict[str, Any]:
    """Definitions that lead back to themselves, by name."""

    def to(name: str) -> dict[str, str]:
        return {"$ref": f"#/definitions/{name}"}

    def of(*names: str, inner: Any) -> dict[str, Any]:
        return {"type": "object", "required": names, "properties": dict.fromkeys(names, inner)}

    return {
        "itself": to("itself"),
        "pair": to("other"),
        "other": to("pair"),
        "chain": of("next", inner=to("chain")),
        "list": of("next", inner={"type": "array", "items": to("list")}),
        "all": {"allOf": [to("all")]},
        "one": {"oneOf": [to("one"), {"type": "string"}]},
        "any": {"anyOf": [of("next", inner=to("any")), to("any")]},
        "wide": of(*"abcdefgh", inner=to("wide")),
        "root": {"$ref": "#"},
        "property": {"$ref": "#/properties/property"},
        "more": {"type": "object", "additionalProperties": to("more")},
        "if": {"if": to("if"), "then": to("if"), "else": to("if")},
    }


def test_every_verb_ends_on_schemas_in_a_circle(tmp_path: Path) -> None:
    found = circles()
    schema = {
        "type": "object",
        "required": [*found],
        "properties": {name: {"$ref": f"#/definitions/{name}"} for name in found},
        "definitions": found,
    }
    (tmp_path / "circle.py").write_text(CONNECTOR)
    (tmp_path / "circle.json").write_text(json.dumps(schema))
    source = f"airbyte:{sys.executable} {tmp_path / 'circle.py'}"
    cli = Cli(tmp_path / "home", tmp_path)
    values: dict[str, Any] = {n: {"next": {"next": [{"a": {"b": "x"}}]}} for n in found}
    config = json.dumps(values)
    for words in (
        ("new", source, "parquet:./lake", "--name", "circle"),
        ("check", source, "--config", config),
        ("plan", source, "parquet:./lake", "--config", config),
    ):
        done = cli(*words, "--json")
        assert done.code in (0, 2) and "Traceback" not in done.err, (words, done.out, done.err)
        assert "RecursionError" not in done.out, (words, done.out)
    text = (tmp_path / "circle.yaml").read_text()
    assert len(text) < 5_000
    assert "chain:\n      next: {}" in text and "wide:\n      a: {}" in text

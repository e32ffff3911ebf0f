"""The published JSON Schema agrees with the reader."""

import json
from typing import Any

import jsonschema_rs
import pytest
import yaml

from penstock.config.load import parse_pipeline
from penstock.config.schema import pipeline_json_schema
from penstock.errors import ConfigError

VALIDATOR = jsonschema_rs.validator_for(pipeline_json_schema())
BASE = {"pipeline": "p", "source": {"use": "airbyte:x"}, "destination": {"use": "parquet"}}


def both(document: dict[str, Any]) -> tuple[bool, bool]:
    """(the schema takes it, the reader takes it)"""
    text = json.dumps(document)
    try:
        parse_pipeline(text, {"V": "1"})
        read = True
    except ConfigError:
        read = False
    return VALIDATOR.is_valid(document), read


def test_design_example_is_valid() -> None:
    """As docs/pipeline-file.md says."""
    example = {
        "version": "1.0",
        "pipeline": "shop",
        "source": {
            "use": "airbyte:source-faker@7.2.1",
            "config": {"count": 10000},
            "streams": [
                {
                    "name": "users",
                    "namespace": "shop",
                    "sync_mode": "incremental",
                    "cursor_field": ["updated_at"],
                    "primary_key": [["id"]],
                    "destination_sync_mode": "append_dedup",
                    "columns": ["id", "name", "email"],
                }
            ],
            "permissions": {"network": {"allowed_hosts": []}},
            "limits": {"max_memory": "512mb", "timeout_seconds": 600},
        },
        "transforms": [{"use": "transform-sql", "config": {"query": "SELECT 1 FROM input"}}],
        "destination": {"use": "parquet", "config": {"path": "./lake"}},
        "state": {"backend": "sqlite"},
    }
    assert [error.message for error in VALIDATOR.iter_errors(example)] == []
    assert both(example) == (True, True)


@pytest.mark.parametrize(
    ("extra", "taken"),
    [
        ({}, True),
        ({"lanes": "auto"}, True),
        ({"lanes": 3}, True),
        ({"lanes": 0}, False),
        ({"lanes": "many"}, False),
        ({"lane": 1}, False),
        ({"timeouts": {"start": "1h30m", "total": 5}}, True),
        ({"timeouts": {"start": "soon"}}, False),
        ({"load": {"max_pending_bytes": "1.5 GiB"}}, True),
        ({"load": {"max_pending_bytes": "lots"}}, False),
        ({"strict": True}, True),
        ({"strict": "yes"}, False),
        ({"state": {"backend": "postgres", "url": "postgres://h/d"}}, True),
        ({"state": {"backend": "mysql"}}, False),
        ({"resources": {"parallelism": "auto", "compression": "lz4"}}, True),
        ({"resources": {"compression": "gzip"}}, False),
        ({"source": {"use": "x", "streams": ["a", {"name": "b", "mode": "upsert"}]}}, True),
        ({"source": {"use": "x", "streams": []}}, False),
        ({"source": {"use": "x", "streams": [{"mode": "upsert"}]}}, False),
        ({"source": {"use": "x", "streams": [{"name": "b", "primary_key": "id"}]}}, True),
        ({"source": {"use": "x", "streams": [{"name": "b", "primary_key": [["a", "b"]]}]}}, True),
        ({"source": {"use": "x", "streams": [{"name": "b", "primary_key": 5.5}]}}, None),
        (
            {"source": {"use": "x", "defaults": {"types": {"a": "decimal(18,4)", "b": "json"}}}},
            True,
        ),
        ({"source": {"use": "x", "defaults": {"types": {"a": "array<struct<b: date>>"}}}}, True),
        ({"source": {"use": "x", "defaults": {"types": {"a": "text"}}}}, False),
        ({"source": {"use": "x", "defaults": {"types": {"a": "decimal"}}}}, False),
        ({"source": {"use": "x", "defaults": {"types": "json"}}}, False),
        ({"source": {"use": "x", "defaults": {"columns": ["a", "b.c", ["d", "e.f"]]}}}, True),
        ({"source": {"use": "x", "defaults": {"columns": []}}}, False),
        ({"source": {"use": "x", "defaults": {"columns": [[]]}}}, False),
        ({"source": {"use": "x", "defaults": {"columns": "a"}}}, False),
        ({"source": {"config": {}}}, False),
        ({"destination": {"use": "delta", "deletes": "soft", "write_mode": "replace"}}, True),
        ({"destination": {"use": "delta", "deletes": "never"}}, False),
        ({"source": {"use": "singer:x", "catalog": "c.json", "catalog_argument": "none"}}, True),
        ({"source": {"use": "singer:x", "catalog_argument": "props"}}, False),
        ({"source": {"use": "singer:x", "catalog": ""}}, False),
        ({"destination": {"use": "singer:x", "acks": "strict", "prefix": "p_"}}, True),
        ({"destination": {"use": "singer:x", "namespace": "a_${SOURCE_NAMESPACE}"}}, True),
        ({"destination": {"use": "singer:x", "namespace": 5.5}}, None),
        ({"destination": {"use": "singer:x", "acks": "maybe"}}, False),
        ({"destination": {"use": "singer:x", "activate_version": "never"}}, True),
        ({"version": "1.0"}, True),
        ({"version": "2.0"}, False),
    ],
)
def test_schema_and_reader_agree(extra: dict[str, Any], taken: bool | None) -> None:
    schema, reader = both({**BASE, **extra})
    if taken is None:
        assert (schema, reader) == (False, True)  # an editor is stricter on numbers as names
    else:
        assert (schema, reader) == (taken, taken)


def test_variables_are_valid_wherever_a_value_is() -> None:
    document = yaml.safe_load(
        "pipeline: ${P}\nlanes: ${LANES}\nstrict: ${S}\nload: {max_pending_time: '${T:-5m}'}\n"
        "source: {use: x, streams: [{name: a, sync_mode: '${M}'}]}\n"
        "destination: {use: y, deletes: '${D}'}\n"
    )
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


def test_every_key_has_a_description() -> None:
    for name, section in pipeline_json_schema()["$defs"].items():
        for key, schema in section.get("properties", {}).items():
            assert schema.get("description"), f"{name}.{key}"

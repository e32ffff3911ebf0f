"""Generates the JSON Schema of the pipeline file, for editors (``penstock schema``).

Made from the structs, with their docstrings and descriptions. A key with a syntax of its own
(``512mb``, ``id`` for ``[[id]]``) gets its literal's schema in place of its type's. Wherever the
file may have a number, a boolean or one of several words, ``${NAME}`` is allowed too.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.config import modes, profiles
from penstock.config.pipeline import PipelineFile
from penstock.config.protocol_spec import EndpointRole, specs
from penstock.model.type_words import SIMPLE

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_NAMES = {**_TEXTS, "minItems": 1}
_SIZE = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([kKmMgGtT][iI]?)?[bB]?\s*$"},
    ]
}
_TIME_KEPT = {"type": "string", "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*)+$"}
_DURATION = {"anyOf": [{"type": "number", "minimum": 0}, _TIME_KEPT]}
_PATH = {"anyOf": [_TEXT, _NAMES]}

_LITERALS: dict[str, dict[str, Any]] = {
    "size": _SIZE,
    "positive_size": _SIZE,
    "positive_duration": _DURATION,
    "time_kept": _TIME_KEPT,
    "count": {"type": "integer", "minimum": 0},
    "positive_int": {"type": "integer", "minimum": 1},
    "flush_bytes": {"type": "integer", "minimum": 1 << 20, "maximum": 32 << 20},
    "lanes": {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]},
    "max_rejected": {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "string", "pattern": r"^\s*([0-9]+|[0-9]{1,3}(\.[0-9]+)?\s*%)\s*$"},
        ]
    },
    "history": {"enum": [True, False, "keyed"]},
    "version": {"anyOf": [{"const": "1.0"}, {"const": 1.0}]},
    "name": _TEXT,
    "connector": _TEXT,
    "file": _TEXT,
    "folder": _TEXT,
    "namespace": {"type": "string"},
    "prefix": {"type": "string"},
    "names": _NAMES,
    "hook": {"anyOf": [{"type": "string"}, _NAMES]},
    "columns": {"type": "array", "minItems": 1, "items": _PATH},
    "hosts": _TEXTS,
    "variable_names": _TEXTS,
    "folders": _TEXTS,
    "capabilities": _TEXTS,
    "requirements": _TEXTS,
    "mode": {"enum": list(modes.WORDS)},
    "sync_mode": {"enum": list(modes.SYNC_WORDS)},
    "destination_sync_mode": {"enum": list(modes.DESTINATION_WORDS)},
    "field_path": _PATH,
    "type": {
        "anyOf": [
            {"enum": list(SIMPLE)},
            {
                "type": "string",
                "pattern": r"^\s*(decimal\s*\(\s*[0-9]+\s*,\s*[0-9]+\s*\)"
                r"|(array|struct)\s*<.+>)\s*$",
            },
        ]
    },
    "key_paths": {"anyOf": [_TEXT, {"type": "array", "items": _PATH}]},
    "streams": {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [_TEXT, {"$ref": "#/$defs/StreamOptions"}]},
    },
}

_VARIABLE = {"$ref": "#/$defs/Variable"}
_NOTES = ("description", "default", "examples")
_TAKES_TEXT = {
    "name", "connector", "file", "folder", "namespace", "prefix", "field_path", "key_paths",
}  # fmt: skip


def pipeline_json_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of the pipeline file."""
    (root,), defs = msgspec.json.schema_components([PipelineFile], ref_template="#/$defs/{name}")
    for name in ("MaxRejected", "DataType", "Field", "Kind"):
        del defs[name]  # their literals' schemas are used instead
    defs["Variable"] = {
        "type": "string",
        "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
        "description": "A value from the environment, --env-file or .env next to the file.",
    }
    defs[PipelineFile.__name__]["properties"][profiles.KEY] = profiles.SCHEMA
    for schema in defs.values():
        if "properties" in schema:
            schema["properties"] = dict(_declared(schema["properties"]))
    finished = {name: _finish(schema) for name, schema in defs.items()}
    finished["Variable"] = defs["Variable"]
    for schema in finished.values():
        if schema.get("type") == "object" and "properties" in schema:
            schema["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Penstock pipeline file",
        **root,
        "$defs": finished,
    }


def _declared(properties: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the properties, with the protocols' own keys in place of the field that holds them."""
    for name, schema in properties.items():
        role: EndpointRole | None = schema.get("x-declared")
        if role is None:
            yield name, schema
            continue
        for declared in filter(None, (spec.keys(role) for spec in specs().values())):
            _, defs = msgspec.json.schema_components([declared])
            yield from defs[declared.__name__]["properties"].items()


def _finish(schema: Any) -> Any:
    """Replaces literals by their schemas and allows variables, at every level of a schema."""
    if isinstance(schema, list):
        return [_finish(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    notes = {k: schema[k] for k in _NOTES if k in schema and schema[k] is not None}
    literal = schema.get("x-literal")
    if literal is not None:
        return {**_with_variable(_LITERALS[literal], literal in _TAKES_TEXT), **notes}
    done = {
        k: ({n: _finish(p) for n, p in v.items()} if k == "properties" else _finish(v))
        for k, v in schema.items()
        if k not in _NOTES
    }
    if done.get("type") in ("integer", "number", "boolean") or "enum" in done:
        done = _with_variable(done, takes_text=False)
    return {**done, **notes}


def _with_variable(schema: dict[str, Any], takes_text: bool) -> dict[str, Any]:
    if takes_text or schema.get("type") == "array":
        return schema
    return {"anyOf": [*schema.get("anyOf", [schema]), _VARIABLE]}

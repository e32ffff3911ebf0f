"""The parts of a pipeline file, other than its ends, that have a form: transforms, profiles,
permissions, streams with their columns, a destination's options.

Their schemas are those of ``penstock schema``, narrowed to the keys that suit a form; every other
key stays in the file unchanged. Not here: the configurations of the ends (``pages.edit``).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

from penstock.config.schema import pipeline_json_schema
from penstock.config.secret_texts import is_harmless, names_a_secret

Steps = tuple[str, ...]
MOST_STREAMS = 40
_STREAM_KEYS = ("name", "namespace", "columns", "types", "mode", "primary_key", "cursor_field")
_TRANSFORM_KEYS = ("use", "config", "permissions", "limits", "folder")


class FilePart(NamedTuple):
    """A part. ``steps``: the path to its value in the file; ``schema``: of the mapping that has it
    under its last step; ``value``: that mapping."""

    title: str
    steps: Steps
    schema: dict[str, Any]
    value: dict[str, Any]

    @property
    def filled(self) -> bool:
        return bool(self.value.get(self.steps[-1]))

    def written(self, read: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """Returns the value for the file; None: the key is removed. ``read``: the value from the
        form; ``values``: of the file."""
        value = read.get(self.steps[-1])
        if self.steps == ("source", "streams") and isinstance(value, list):
            had = _at(values, self.steps)
            words = [e for e in cast(list[Any], had or ()) if isinstance(e, str)]
            return [_short(e, words) for e in cast(list[Any], value)] or None
        return value


def parts_of(values: Mapping[str, Any], options: Any = None) -> list[FilePart]:
    """Returns the parts of a file with these values. ``options``: the schema of the destination's
    ``options``, as a Syncmaven connector publishes it."""
    listed: list[tuple[str, Steps, Any]] = []
    streams = _at(values, ("source", "streams"))
    if not isinstance(streams, list) or len(cast(list[Any], streams)) <= MOST_STREAMS:
        listed.append(("Streams and their columns", ("source", "streams"), _streams()))
    listed.append(("Columns and keys of every stream", ("source", "defaults"), _defaults()))
    if isinstance(options, dict):
        listed.append(("Options of the destination's stream", ("destination", "options"), options))
    listed += [
        ("Transforms", ("transforms",), _transforms()),
        ("What the source may reach", ("source", "permissions"), _of("Permissions")),
        ("What the destination may reach", ("destination", "permissions"), _of("Permissions")),
        ("Profiles", ("profiles",), _profiles()),
    ]
    return [_part(title, steps, node, values) for title, steps, node in listed]


def _part(title: str, steps: Steps, node: Any, values: Mapping[str, Any]) -> FilePart:
    schema = {"$defs": _document()["$defs"], "properties": {steps[-1]: node}}
    value = _at(values, steps)
    if steps == ("source", "streams") and isinstance(value, list):
        entries = cast(list[Any], value)
        value = [{"name": e} if isinstance(e, str) else e for e in entries]
    return FilePart(title, steps, schema, {} if value is None else {steps[-1]: value})


def named_secrets(value: Any, key: str = "") -> set[str]:
    """Lists the texts under keys that name a secret, in a part that no connector describes."""
    if isinstance(value, dict):
        given = cast(dict[str, Any], value)
        return {text for k, v in given.items() for text in named_secrets(v, k)}
    if isinstance(value, list):
        return {text for v in cast(list[Any], value) for text in named_secrets(v, key)}
    text = str(value)
    return {text} if names_a_secret(key) and not is_harmless(text) else set()


def _short(entry: Any, words: Sequence[str]) -> Any:
    """Returns an entry that has only a name as a word, if it was one."""
    given = cast(dict[str, Any], entry) if isinstance(entry, dict) else {}
    return given["name"] if given.keys() == {"name"} and given["name"] in words else entry


def _at(values: Any, steps: Steps) -> Any:
    for step in steps:
        values = cast(dict[str, Any], values).get(step) if isinstance(values, dict) else None
    return values


@cache
def _document() -> dict[str, Any]:
    return pipeline_json_schema()


def _of(name: str, *keys: str, first: str = "") -> dict[str, Any]:
    """Returns a section's schema with these keys alone; every other key of the file is allowed
    too."""
    node: dict[str, Any] = _document()["$defs"][name]
    found: dict[str, Any] = node["properties"]
    kept = {k: found[k] for k in keys or found if k in found}
    if first:
        kept = {k: {**v, "always_show": True} if k == first else v for k, v in kept.items()}
    kept = {k: {**v, "order": n} for n, (k, v) in enumerate(kept.items())}
    shown = {"type": "object", "properties": kept, "description": node.get("description", "")}
    return {**shown, "required": [k for k in node.get("required", ()) if k in kept]}


@cache
def _transforms() -> dict[str, Any]:
    about = _document()["$defs"]["PipelineFile"]["properties"]["transforms"]["description"]
    items = _of("Transform", *_TRANSFORM_KEYS, first="config")
    return {"type": "array", "items": items, "description": about, "always_show": True}


@cache
def _streams() -> dict[str, Any]:
    about = _document()["$defs"]["Source"]["properties"]["streams"]["description"]
    items = _of("StreamOptions", *_STREAM_KEYS, first="columns")
    return {"type": "array", "items": items, "description": about, "always_show": True}


@cache
def _defaults() -> dict[str, Any]:
    return {**_of("StreamSettings", *_STREAM_KEYS, first="columns"), "always_show": True}


@cache
def _profiles() -> dict[str, Any]:
    about = _document()["$defs"]["PipelineFile"]["properties"]["profiles"]["description"]
    ends = {
        name.lower(): {**_of(name, "use", "config"), "required": [], "always_show": True}
        for name in ("Source", "Destination")
    }
    values = {"type": "object", "properties": ends}
    return {"type": "object", "additionalProperties": values, "description": about,
            "always_show": True}  # fmt: skip

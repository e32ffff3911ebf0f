"""Makes a JSON Schema of the settings that the index lists for a connector that does not describe
itself.

The index comes from a hub and may be older than the connector: the schema serves forms, not
validation. Pure, except that it reads the index (``index``).
"""

from typing import Any

from penstock.connectors.catalog.index import IndexedConnector, Setting, indexed

LISTED_SECRET = "secret"
"""The annotation that marks secrets in these schemas."""

_KINDS: dict[str, dict[str, Any]] = {
    "password": {"type": "string", LISTED_SECRET: True},
    "oauth": {"type": "string", LISTED_SECRET: True},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object"},
    "date_iso8601": {"type": "string", "format": "date-time"},
}


def listed_schema(protocol: str | None, name: str) -> dict[str, Any] | None:
    """Returns the schema of a connector by its protocol and name, secrets marked with
    :data:`LISTED_SECRET`; None: the index has no settings for it. Of several variants the hub's
    choice counts."""
    found = [e for e in indexed() if e.protocol == protocol and e.settings]
    found = [e for e in found if name == e.name or f"{protocol}:{name}" in e.references]
    best = next((e for e in found if e.default), found[0] if found else None)
    return None if best is None else settings_schema(best)


def settings_schema(entry: IndexedConnector) -> dict[str, Any]:
    """Returns the schema of an entry's settings. Dots in a name lead into objects. Settings are
    required if the entry has one group of them; of several groups any one may be given."""
    made: dict[str, Any] = {"type": "object", "properties": {}}
    required = entry.required[0] if len(entry.required) == 1 else []
    for setting in entry.settings:
        at = made
        *outer, name = setting.name.split(".")
        for step in outer:
            inner = at["properties"].setdefault(step, {"type": "object"})
            inner.setdefault("properties", {})
            at = inner
        at["properties"][name] = {**at["properties"].get(name, {}), **_property(setting)}
        if setting.name in required and not outer:
            at.setdefault("required", []).append(name)
    return made


def _property(setting: Setting) -> dict[str, Any]:
    made = dict(_KINDS.get(setting.kind, {"type": "string"}))
    if setting.secret:
        made[LISTED_SECRET] = True
    if setting.label:
        made["title"] = setting.label
    if setting.options:
        made["enum"] = list(setting.options)
    if setting.default is not None and not made.get(LISTED_SECRET):
        made["default"] = setting.default
    return made

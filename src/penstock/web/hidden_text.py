"""Hides the secrets in the text of a pipeline file, and restores them in what the browser sends.

Secret are values that the connector's schema marks; without a schema, every text of the
configuration that may be secret; elsewhere values by their key or their address, and those with the
tag ``!secret``. Each is shown as stars with a mark that means nothing outside of this server. Not
here: fields of a form (``forms``), where values stand (``yaml_places``).
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any, cast

from penstock.api.roles import AskedRole
from penstock.config.secret_texts import is_harmless, is_name, names_a_secret
from penstock.errors import ConfigError
from penstock.protocols.json_schema.address_secrets import address_secrets
from penstock.protocols.json_schema.config_check import secret_values
from penstock.web.connector_specs import ConnectorSpecs, is_table, schema_of_form
from penstock.web.yaml_places import YamlPlace, places_of

_MARK = re.compile(r"\*{8}-[0-9a-f]{8}")
_KEPT = 10_000
_LEAST = 6  # characters of a secret that is searched for everywhere, also in comments
_LINE = re.compile(r"(?m)^[ \t-]*[\"']?([\w.-]+)[\"']?[ \t]*:[ \t]+([^\s#].*)$")


class HiddenTexts:
    """The secrets that pages have shown as stars."""

    def __init__(self, specs: ConnectorSpecs) -> None:
        self._specs = specs
        self._marks: OrderedDict[str, str] = OrderedDict()  # raw text -> mark

    def hide(self, text: str) -> str:
        """Returns a file's text without its secrets."""
        try:
            root = places_of(text)
        except ConfigError:  # the text has no known structure: keys decide, line by line
            found = [(m.start(2), m.end(2)) for m in _LINE.finditer(text) if _by_name(m[1], m[2])]
            return self._cut(text, found, set(address_secrets(text)))
        secrets = self._secrets(root)
        spans: list[tuple[int, int]] = []
        for path, place in _scalars(root):
            value = str(place.value)
            raw = text[place.start : place.end]
            if "${" in value or place.value is None:
                continue
            named = not self._is_known(root, path) and not is_name(".".join(path))
            by_name = named and bool(path) and _by_name(path[-1], value)
            within = any(s in value and s not in raw for s in secrets)
            if raw.startswith("!secret") or value in secrets or by_name or within:
                spans.append((place.start, place.start + len(raw.rstrip())))
            else:
                secrets |= {*address_secrets(value)}
        return self._cut(text, spans, secrets)

    def restore(self, text: str) -> str:
        """Restores the secrets in a text that the browser sent. Raises ``ConfigError``
        (``ui.hidden``) for stars that this server has not made."""
        known = {mark: raw for raw, mark in self._marks.items()}
        if any(m[0] not in known for m in _MARK.finditer(text)):
            raise ConfigError(
                "this text has stars in the place of a secret, and the pages were started again "
                "since it was shown",
                code="ui.hidden",
                hint="open the page again, and make the change there",
            )
        return _MARK.sub(lambda m: known[m[0]], text)

    def _cut(self, text: str, spans: list[tuple[int, int]], secrets: set[str]) -> str:
        made: list[str] = []
        at = 0
        for start, end in sorted(spans):
            made += [text[at:start], self._mark(text[start:end])]
            at = end
        shown = "".join([*made, text[at:]])
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _LEAST and not is_harmless(secret) and secret in shown:
                shown = shown.replace(secret, self._mark(secret))
        return shown

    def _mark(self, raw: str) -> str:
        mark = self._marks.pop(raw, None) or f"********-{token_hex(4)}"
        self._marks[raw] = mark
        while len(self._marks) > _KEPT:
            self._marks.popitem(last=False)
        return mark

    def _secrets(self, root: YamlPlace) -> set[str]:
        """Returns the secret texts of the ends' configurations, also of profiles."""
        found: set[str] = set()
        values = root.value if isinstance(root.value, dict) else {}
        profiles = cast(dict[str, Any], values).get("profiles")
        more = cast(dict[str, Any], profiles) if isinstance(profiles, dict) else {}
        for role in (AskedRole.source, AskedRole.destination):
            use = _text(values, role.value, "use")
            for each in (values, *more.values()):
                own = _text(each, role.value, "use") or use
                section = (
                    cast(dict[str, Any], each).get(role.value) if isinstance(each, dict) else 0
                )
                config = (
                    cast(dict[str, Any], section).get("config")
                    if isinstance(section, dict)
                    else None
                )
                if own and config is not None and not _is_table(own):
                    asked = self._specs.known(own, role)
                    schema, word = {}, None
                    if asked is not None:
                        schema, word, _ = schema_of_form(asked)
                    found |= {*secret_values(schema, config, word)}
        return {text for text in found if "${" not in text and not is_harmless(text)}

    def _is_known(self, root: YamlPlace, path: tuple[str, ...]) -> bool:
        """Returns whether the specification of the value's connector is known."""
        if path[1:2] != ("config",) or path[0] not in ("source", "destination"):
            return False
        use = _text(root.value, path[0], "use")
        return bool(use) and self._specs.known(use, AskedRole(path[0])) is not None


def _by_name(key: str, value: str) -> bool:
    return names_a_secret(key) and not is_harmless(value.strip("\"' ")) and "${" not in value


def _scalars(
    place: YamlPlace, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], YamlPlace]]:
    if place.kind == "mapping":
        for (name, _, _), item in zip(place.keys, place.items, strict=True):
            yield from _scalars(item, (*path, name))
    elif place.kind == "list":
        for item in place.items:
            yield from _scalars(item, path)
    elif place.kind == "scalar":
        yield path, place


def _text(values: Any, *steps: str) -> str:
    for step in steps:
        values = cast(Mapping[str, Any], values).get(step) if isinstance(values, dict) else None
    return str(values or "")


def _is_table(use: str) -> bool:
    try:
        return is_table(use)
    except ConfigError:
        return False

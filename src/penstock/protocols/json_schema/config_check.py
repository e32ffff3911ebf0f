"""Validates a connector's configuration against the JSON Schema it publishes, before the connector
is started, and collects the secrets in it.

The keyword that marks secrets is a parameter, which ``protocols/*`` set; None means that there is
no such keyword and the whole configuration is credentials. No value of a secret property gets into
a message (L10). Neighbours: ``connectors`` and ``cli`` call it. Sources: Airbyte protocol, Actor
Specification (draft-07); connectors write alternatives as ``oneOf`` with a ``const`` discriminator.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs
import msgspec

from penstock.codec.schema_walk import BRANCHES, CONDITIONS, parts
from penstock.config import did_you_mean
from penstock.config.secret_texts import MARKS_ONLY, is_harmless, names_a_secret
from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.address_secrets import address_secrets
from penstock.protocols.json_schema.schema_repair import no_remote, repaired
from penstock.protocols.json_schema.validation_steps import why_not_validated

_PARTS = (*BRANCHES, *CONDITIONS)
_HEADER = re.compile(r"[A-Za-z][\w-]*:(?!//)\s*(?P<value>\S.*)")
_SHOWN = 60  # characters of a value in a message
_DEPTH = 24
_GIVEN_UP = jsonschema_rs.ValidationErrorKind.BacktrackLimitExceeded
"""The result of a pattern that takes too many steps: it is unknown whether the value matches."""

Path = tuple[str | int, ...]


def _dropped(text: str, /) -> None:
    """Drops a detail."""


def validate_config(
    spec: ConnectorSpec,
    config: dict[str, Any],
    secret_word: str | None,
    detail: Callable[[str], None] = _dropped,
) -> list[str]:
    """Validates a configuration. Raises ``ConfigError`` with every fault in ``problems``, each with
    its path (``config.credentials.0.port``). A required property that has a default is not missing:
    the connector takes the default.

    Returns notes: keys that the schema does not name, not a fault, as most schemas are open; and
    the skipped checks, where the published schema itself is invalid (the connector's fault, not the
    user's). ``detail``: gets faults of the schema that cost no check."""
    schema, notes = spec.config_schema, list[str]()
    if (reason := why_not_validated(schema, config)) is not None:
        return [f"the connector's config schema {reason}, so config is not checked"]
    try:
        validator = _validator(schema)
    except (jsonschema_rs.ValidationError, ValueError):
        repair = repaired(schema)
        for fault in repair.meant:
            detail(f"the connector's config schema has a fault that affects no check: {fault}")
        try:
            validator = _validator(repair.schema)
        except (jsonschema_rs.ValidationError, ValueError) as e:
            text = str(e).partition("\n")[0]
            return [
                f"the connector's own config schema is invalid, so config is not checked: {text}"
            ]
        schema = repair.schema
        notes = [f"the connector's config schema is invalid here, which is not checked: {fault}"
                 for fault in repair.lost]  # fmt: skip
    secrets = _Secrets(spec.config_schema, config, secret_word)
    found = _Faults(schema, secrets)
    problems = [p for error in validator.iter_errors(config) for p in found.of(error)]
    notes += dict.fromkeys(found.unchecked)
    if not problems:
        return [*notes, *_unnamed(schema, config)]
    problems = list(dict.fromkeys(problems))
    raise ConfigError(
        problems[0] if len(problems) == 1 else f"{len(problems)} faults in the connector's config",
        code="config.connector",
        problems=problems,
        hint="see the connector's documentation"
        + (f": {spec.documentation_url}" if spec.documentation_url else ""),
    )


def secret_values(schema: Any, config: Any, secret_word: str | None) -> list[str]:
    """Collects every text that must be masked: values of properties that the schema marks, in any
    branch of oneOf, anyOf and allOf, behind any ``$ref``, in arrays; numbers as text; every value
    inside a marked object or array; and the secrets in addresses (``address_secrets``), marked or
    not. Where the configuration is credentials, every text is a secret, except values that the
    schema itself publishes, numbers, booleans, dates and short words, unless their property has a
    secret's name. Longest first, none empty."""
    texts = _Secrets(schema, config, secret_word).texts
    return sorted(texts, key=lambda text: (-len(text), text))


@lru_cache(maxsize=1024)
def _may_match(pattern: str, name: str) -> bool:
    """Returns whether the pattern matches, by the validator's own engine. A pattern that it cannot
    compile, or abandons after too many steps, counts as a match, so that no secret is missed."""
    try:
        errors = _validator({"pattern": pattern}).iter_errors(name)
        return all(isinstance(error.kind, _GIVEN_UP) for error in errors)
    except (jsonschema_rs.ValidationError, ValueError):
        return True


def _validator(schema: Any) -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(
        schema, mask="the value", validate_formats=False, retriever=no_remote
    )


class _Secrets:
    """The paths and the texts of the secrets in a configuration."""

    def __init__(self, schema: Any, config: Any, word: str | None) -> None:
        self._root, self._word = schema, word
        self._paths: set[Path] = {()} if word is None else set()
        self.texts: set[str] = set()
        self._walk([schema], config, ())
        self.texts.update(s for text in _texts(config) for s in address_secrets(text))

    def hides(self, path: Path, value: Any) -> bool:
        """Returns whether the value must not be shown: it is a secret, lies in one, equals one, or
        is an address that contains one."""
        within = any(path[:n] in self._paths for n in range(len(path) + 1))
        return within or any(
            t in self.texts or any(True for _ in address_secrets(t)) for t in _texts(value)
        )

    def _walk(self, nodes: list[Any], value: Any, path: Path) -> None:
        if len(path) > _DEPTH:  # too deep to be searched
            all_of_it = self._word is None
            self.texts.update(t for t in _texts(value) if all_of_it or not is_harmless(t))
            return
        schemas = parts(self._root, nodes, _PARTS)
        if self._word is None:
            if not isinstance(value, dict | list):
                self._credential(schemas, value, path)
        elif any(part.get(self._word) is True for part in schemas):
            self._paths.add(path)
            self.texts.update(_texts(value))
        if isinstance(value, dict):
            for name, item in cast(dict[str, Any], value).items():
                inner = [node for part in schemas for node in _of_property(part, name)]
                self._walk(inner, item, (*path, name))
        elif isinstance(value, list):
            inner = _items(schemas)
            for i, item in enumerate(cast(list[Any], value)):
                self._walk(inner, item, (*path, i))

    def _credential(self, schemas: list[dict[str, Any]], value: Any, path: Path) -> None:
        """Adds a scalar of credentials as a secret, unless it hides nothing."""
        named = names_a_secret(next((str(s) for s in reversed(path) if isinstance(s, str)), ""))
        if not named and any(value in _published(part) for part in schemas):
            return
        for text in _texts(value):
            for form in (text, *_in_header(text)):
                if named or not is_harmless(form):
                    self.texts.add(form)
            if text[:1] in ("{", "["):  # the key file of an account, as one text
                with suppress(msgspec.DecodeError):
                    self._walk([], msgspec.json.decode(text), (*path, 0))


def _in_header(text: str) -> Iterator[str]:
    """Yields the value of a text that is an HTTP header, and the token in it."""
    found = _HEADER.fullmatch(text)
    if found is not None:
        yield found["value"]
        yield found["value"].rpartition(" ")[2]


def _published(part: dict[str, Any]) -> list[Any]:
    """Returns the values that a schema shows publicly."""
    shown = [part[word] for word in ("const", "default") if word in part]
    for word in ("enum", "examples"):
        given = part.get(word)
        shown += cast(list[Any], given) if isinstance(given, list) else []
    return shown


def _of_property(part: dict[str, Any], name: str) -> list[Any]:
    known, loose = _named(part, "properties"), _named(part, "patternProperties")
    if name in known:
        return [known[name]]
    matching = [inner for pattern, inner in loose.items() if _may_match(pattern, name)]
    return [*matching, part.get("additionalProperties")]


def _named(part: dict[str, Any], word: str) -> dict[str, Any]:
    found = part.get(word)
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _items(schemas: list[dict[str, Any]]) -> list[Any]:
    given = [part.get("items") for part in schemas]
    return [i for g in given for i in (cast(list[Any], g) if isinstance(g, list) else [g])]


def _texts(value: Any) -> Iterator[str]:
    """Yields every scalar in a value, as text. Does not recurse: a value may be nested thousands of
    levels deep."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            waiting += reversed(cast(dict[str, Any], here).values())
        elif isinstance(here, list):
            waiting += reversed(cast(list[Any], here))
        elif not isinstance(here, bool) and here is not None and here != "":
            yield str(here)


# -- keys that the schema does not name


class _Names:
    """The keys that a schema names for an object, in all branches. ``known``: the schemas of each;
    ``open``: ``additionalProperties`` is true somewhere; ``typed``: it is a schema somewhere;
    ``patterns``: of ``patternProperties``."""

    def __init__(self, root: Any, nodes: list[Any]) -> None:
        self.known: dict[str, list[Any]] = {}
        self.patterns: list[str] = []
        self.open, self.typed = False, False
        ours = root.get(MARKS_ONLY) if isinstance(root, dict) else None
        for part in parts(root, nodes, _PARTS):
            if part is ours:
                continue
            more = part.get("additionalProperties")
            self.open |= more is True
            self.typed |= isinstance(more, dict)
            self.patterns += _named(part, "patternProperties")
            for name, inner in _named(part, "properties").items():
                self.known.setdefault(name, []).append(inner)


def _unnamed(root: Any, config: dict[str, Any]) -> Iterator[str]:
    """Yields a note for each key of the configuration that the schema does not name. Where the
    schema allows other keys, only keys that look like a misspelling of a missing key get one."""

    def walk(nodes: list[Any], value: Any, path: Path) -> Iterator[str]:
        if len(path) > _DEPTH:
            return
        if isinstance(value, list):
            items = [i for n in nodes if isinstance(n, dict) for i in [n.get("items")]]
            for i, item in enumerate(cast(list[Any], value)):
                yield from walk(items, item, (*path, i))
            return
        if not isinstance(value, dict):
            return
        given, names = cast(dict[str, Any], value), _Names(root, nodes)
        for name, inner in given.items():
            if name in names.known:
                yield from walk(names.known[name], inner, (*path, name))
                continue
            if not names.known or names.typed or any(_may_match(p, name) for p in names.patterns):
                continue
            near = did_you_mean.closest(name, [k for k in names.known if k not in given])
            if near is not None or not names.open:
                meant = f"; did you mean {near!r}?" if near is not None else ""
                where = _where((*path, name))
                yield f"{where}: the connector's schema does not name it{meant}"

    yield from walk([root], config, ())


# -- faults


class _Faults:
    """Describes the faults that the validator found in a configuration. ``unchecked``: notes on
    values whose pattern it abandoned."""

    def __init__(self, schema: Any, secrets: _Secrets) -> None:
        self._schema, self._secrets = schema, secrets
        self.unchecked: list[str] = []

    def of(self, error: Any) -> Iterator[str]:
        """Yields one line for each fault. Of alternatives (oneOf, anyOf) only the one that the user
        chose is reported; none where what one of them lacks has a default."""
        kind = error.kind.name
        if kind in ("oneOf", "anyOf"):
            contexts = getattr(error.kind, "context", None)
            if contexts:
                yield from self._alternatives(error, contexts)
                return
        path: Path = tuple(error.instance_path)
        where, got = _where(path), _got(path, error.instance, self._secrets)
        if isinstance(error.kind, _GIVEN_UP):
            self.unchecked.append(
                f"{where}: not checked, as the pattern in the connector's config schema takes too"
                " many steps"
            )
        elif kind == "required":
            if not self._has_default(error):
                yield f"{where}: {error.kind.property!r} is required"
        elif kind == "additionalProperties":
            names = [str(n) for n in error.kind.unexpected]
            yield f"{where}: unknown: {', '.join(names)}"
        elif kind == "enum":
            options = [str(o) for o in cast(list[Any], error.kind.options)]
            hint = did_you_mean.hint(str(error.instance), options)
            yield f"{where}: not one of the allowed values{got}; {hint}"
        elif kind == "type":
            types = " or ".join(cast(list[str], error.kind.types))
            yield f"{where}: expected {types}, not {_type_word(error.instance)}{got}"
        elif kind == "pattern" and (form := self._described_form(error)):
            yield f"{where}: expected the form {form}{got}"
        else:
            yield f"{where}: {error.message}{got}"

    def _described_form(self, error: Any) -> str:
        """Returns the schema's words for its pattern (Airbyte's ``pattern_descriptor``); empty: it
        has none."""
        node: Any = self._schema
        for step in list(error.schema_path)[:-1]:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return ""
        words = cast(dict[str, Any], node).get("pattern_descriptor")
        return " ".join(words.split())[:200] if isinstance(words, str) else ""

    def _alternatives(self, error: Any, contexts: list[list[Any]]) -> Iterator[str]:
        """Yields the faults of the branch whose discriminator matches; where none matches, the
        allowed values of the discriminator; where there is no discriminator, the faults of the
        branch with the fewest."""
        path: Path = tuple(error.instance_path)
        if not any(contexts):
            yield f"{_where(path)}: fits several of {len(contexts)} alternatives"
            return
        branches = [[(e, found) for e in b if (found := [*self.of(e)])] for b in contexts]
        if not all(branches):
            return  # one fits, apart from a property with a default
        mismatches = [[e for e, _ in branch if _discriminates(e, path)] for branch in branches]
        matching = [b for b, m in zip(branches, mismatches, strict=True) if not m]
        if any(mismatches) and not matching:
            wrong = mismatches[0][0]
            words = [str(w) for m in mismatches for e in m for w in _expected(e)]
            discriminator = tuple(wrong.instance_path)
            got = _got(discriminator, wrong.instance, self._secrets)
            hint = did_you_mean.hint(str(wrong.instance), words)
            yield f"{_where(discriminator)}: not one of the alternatives{got}; {hint}"
            return
        for _, found in min(matching or branches, key=len):
            yield from found
        if not any(mismatches) and len(contexts) > 1:
            many = f"{len(contexts)} alternatives"
            yield f"{_where(path)}: fits none of {many} (the nearest is shown)"

    def _has_default(self, error: Any) -> bool:
        """Returns whether the missing property has a default: in the schema that requires it, or in
        one that applies to the same object and has that schema as a branch."""
        steps: list[Any] = list(error.schema_path)[:-1]
        nodes = [self._schema]
        for step in steps:
            inner: Any = nodes[-1]
            if not (step in inner if isinstance(inner, dict) else isinstance(inner, list)):
                return False
            nodes.append(inner[step])
        while True:
            for part in parts(self._schema, [nodes.pop()], ("allOf",)):
                named = _named(part, "properties").get(error.kind.property)
                if any("default" in p for p in parts(self._schema, [named], ("allOf",))):
                    return True
            step = steps.pop() if steps else ""
            if not isinstance(step, int) and step not in _PARTS:
                return False


def _discriminates(error: Any, path: Path) -> bool:
    """Returns whether the error is at a discriminator: a constant one level below the
    alternatives."""
    if len(tuple(error.instance_path)) != len(path) + 1:
        return False
    return error.kind.name == "const" or (error.kind.name == "enum" and len(_expected(error)) == 1)


def _expected(error: Any) -> list[Any]:
    if error.kind.name == "const":
        return [error.kind.expected_value]
    return list(cast(list[Any], error.kind.options))


def _got(path: Path, value: Any, secrets: _Secrets) -> str:
    """Returns the value in brackets; empty for a secret, an object or an array."""
    if isinstance(value, dict | list) or secrets.hides(path, value):
        return ""
    text = repr(value)
    return f" (got {text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''})"


def _where(path: Path) -> str:
    return ".".join(["config", *(str(p) for p in path)])


def _type_word(value: Any) -> str:
    words = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else words.get(type(value), "object")

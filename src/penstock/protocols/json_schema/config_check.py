"""A connector's config against the JSON Schema it published, before the connector is asked.

Knows no protocol: the word that marks secrets is a parameter. No value of a secret property ever
comes into a message (L10). Neighbours: ``connectors`` and ``cli`` call it; ``protocols/*`` say the
word. Sources: protocol, Actor Specification (draft-07); "oneOf with a const discriminator" is how
connectors write alternatives.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import jsonschema_rs

from penstock.codec.schema_walk import BRANCHES, CONDITIONS, parts
from penstock.config import did_you_mean
from penstock.errors import ConfigError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.address_secrets import address_secrets

_PARTS = (*BRANCHES, *CONDITIONS)
_SHOWN = 60  # characters of a value in a message
_DEPTH = 24

Path = tuple[str | int, ...]


def validate_config(spec: ConnectorSpec, config: dict[str, Any], secret_word: str) -> list[str]:
    """Raises ``ConfigError`` with every fault in ``problems``, each with its path from ``config``
    (``config.credentials.0.port``). Returns notes: keys that the schema does not name, which is no
    fault, as most schemas are open; why nothing was validated where the published schema is none
    itself, which is the connector's fault and not the user's."""
    schema = spec.config_schema
    try:
        validator = jsonschema_rs.Draft7Validator(
            schema, mask="the value", validate_formats=False, retriever=_no_remote
        )
    except (jsonschema_rs.ValidationError, ValueError) as e:
        text = str(e).partition("\n")[0]
        return [f"the connector's own config schema is invalid, so config is not checked: {text}"]
    secrets = _Secrets(schema, config, secret_word)
    problems = [p for error in validator.iter_errors(config) for p in _problems(error, secrets)]
    if not problems:
        return list(_unnamed(schema, config))
    problems = list(dict.fromkeys(problems))
    raise ConfigError(
        problems[0] if len(problems) == 1 else f"{len(problems)} faults in the connector's config",
        code="config.connector",
        problems=problems,
        hint="see the connector's documentation"
        + (f": {spec.documentation_url}" if spec.documentation_url else ""),
    )


def secret_values(schema: Any, config: Any, secret_word: str) -> list[str]:
    """Every text that must be masked: values whose property the schema marks, in any branch of
    oneOf, anyOf and allOf, behind any ``$ref``, in arrays; numbers as text, of an object or array
    everything inside; and what addresses hold (``address_secrets``), marked or not. Longest first,
    none empty."""
    found = _Secrets(schema, config, secret_word).texts
    return sorted(found, key=lambda text: (-len(text), text))


def _may_match(pattern: str, name: str) -> bool:
    """What cannot be read here may mean any name: rather one secret too many."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


def _no_remote(uri: str) -> NoReturn:
    raise ValueError(f"schemas are not fetched: {uri}")


class _Secrets:
    """Where the config holds secrets, and which."""

    def __init__(self, schema: Any, config: Any, word: str) -> None:
        self._root, self._word = schema, word
        self._paths: set[Path] = set()
        self.texts: set[str] = set()
        self._walk([schema], config, ())
        self.texts.update(s for text in _texts(config) for s in address_secrets(text))

    def hides(self, path: Path, value: Any) -> bool:
        """True where the value must not be shown: it is, or lies in, or equals a secret, or is an
        address with one."""
        within = any(path[:n] in self._paths for n in range(len(path) + 1))
        return within or any(
            t in self.texts or any(True for _ in address_secrets(t)) for t in _texts(value)
        )

    def _walk(self, nodes: list[Any], value: Any, path: Path) -> None:
        if len(path) > _DEPTH:
            return
        here = parts(self._root, nodes, _PARTS)
        if any(part.get(self._word) is True for part in here):
            self._paths.add(path)
            self.texts.update(_texts(value))
        if isinstance(value, dict):
            for name, item in cast(dict[str, Any], value).items():
                inner = [node for part in here for node in _of_property(part, name)]
                self._walk(inner, item, (*path, name))
        elif isinstance(value, list):
            inner = _items(here)
            for i, item in enumerate(cast(list[Any], value)):
                self._walk(inner, item, (*path, i))


def _of_property(part: dict[str, Any], name: str) -> list[Any]:
    known, loose = _named(part, "properties"), _named(part, "patternProperties")
    if name in known:
        return [known[name]]
    fitting = [inner for pattern, inner in loose.items() if _may_match(pattern, name)]
    return [*fitting, part.get("additionalProperties")]


def _named(part: dict[str, Any], word: str) -> dict[str, Any]:
    found = part.get(word)
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _items(here: list[dict[str, Any]]) -> list[Any]:
    given = [part.get("items") for part in here]
    return [i for g in given for i in (cast(list[Any], g) if isinstance(g, list) else [g])]


def _texts(value: Any) -> Iterator[str]:
    """Every text that a value would be printed as."""
    if isinstance(value, bool) or value is None or value == "":
        return
    if isinstance(value, dict):
        for inner in cast(dict[str, Any], value).values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            yield from _texts(inner)
    else:
        yield str(value)


# -- keys that nobody reads


class _Names:
    """What a schema says of the keys of an object, in whichever branch. ``known``: the schemas of
    each; ``open``: it says that others are welcome; ``patterns``: others that it means."""

    def __init__(self, root: Any, nodes: list[Any]) -> None:
        self.known: dict[str, list[Any]] = {}
        self.patterns: list[str] = []
        self.open, self.typed = False, False
        for part in parts(root, nodes, _PARTS):
            more = part.get("additionalProperties")
            self.open |= more is True
            self.typed |= isinstance(more, dict)
            self.patterns += _named(part, "patternProperties")
            for name, inner in _named(part, "properties").items():
                self.known.setdefault(name, []).append(inner)


def _unnamed(root: Any, config: dict[str, Any]) -> Iterator[str]:
    """A note for each key of the config that its schema does not name. Where the schema says that
    others are welcome, only what looks like a slip of a key that is not there."""

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


# -- messages


def _problems(error: Any, secrets: _Secrets) -> Iterator[str]:
    """One line a fault; alternatives are resolved to the one the user means."""
    kind = error.kind.name
    if kind in ("oneOf", "anyOf"):
        contexts = getattr(error.kind, "context", None)
        if contexts:
            yield from _alternatives(error, contexts, secrets)
            return
    path: Path = tuple(error.instance_path)
    where, got = _where(path), _got(path, error.instance, secrets)
    if kind == "required":
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
    else:
        yield f"{where}: {error.message}{got}"


def _alternatives(error: Any, contexts: list[list[Any]], secrets: _Secrets) -> Iterator[str]:
    """The faults of the branch whose discriminator fits; where none fits, what it may be; where
    there is no discriminator, those of the branch with the fewest."""
    path: Path = tuple(error.instance_path)
    marks = [[e for e in branch if _discriminates(e, path)] for branch in contexts]
    fitting = [b for b, m in zip(contexts, marks, strict=True) if not m]
    if any(marks) and not fitting:
        wrong = marks[0][0]
        words = [str(w) for m in marks for e in m for w in _expected(e)]
        place = tuple(wrong.instance_path)
        got = _got(place, wrong.instance, secrets)
        hint = did_you_mean.hint(str(wrong.instance), words)
        yield f"{_where(place)}: not one of the alternatives{got}; {hint}"
        return
    best = min(fitting or contexts, key=len)
    for inner in best:
        yield from _problems(inner, secrets)
    if not any(marks) and len(contexts) > 1:
        yield f"{_where(path)}: fits none of {len(contexts)} alternatives (the nearest is shown)"


def _discriminates(error: Any, path: Path) -> bool:
    """A fixed word one level below the alternatives: that is how they are told apart."""
    if len(tuple(error.instance_path)) != len(path) + 1:
        return False
    return error.kind.name == "const" or (error.kind.name == "enum" and len(_expected(error)) == 1)


def _expected(error: Any) -> list[Any]:
    if error.kind.name == "const":
        return [error.kind.expected_value]
    return list(cast(list[Any], error.kind.options))


def _got(path: Path, value: Any, secrets: _Secrets) -> str:
    """The value in brackets where it may be shown and says something."""
    if isinstance(value, dict | list) or secrets.hides(path, value):
        return ""
    text = repr(value)
    return f" (got {text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''})"


def _where(path: Path) -> str:
    return ".".join(["config", *(str(p) for p in path)])


def _type_word(value: Any) -> str:
    words = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else words.get(type(value), "object")

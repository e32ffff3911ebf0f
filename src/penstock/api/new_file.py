"""Writes the text of a new pipeline file from the configurations that two connectors publish.

The file has every required property, secrets and unknown values as ``${VARIABLE}``. Optional
properties have their defaults, which connectors expect to be given (source-faker fails without), or
are comments where they have none. Not here: querying the connectors and the user (``cli.new``), the
format of a file (``config.pipeline``).
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.api.asking import AskedSpec, listed_settings
from penstock.api.property_facts import PropertyFacts, SchemaProperty, properties_of, variants_of
from penstock.codec.schema_walk import parts
from penstock.connectors.catalog.settings import LISTED_SECRET

if TYPE_CHECKING:
    from penstock.connectors.reference import ConnectorRef

_WIDTH = 92
_DEPTH = 6
_PLAIN = re.compile(r"[A-Za-z_./][\w./@:-]*")
_YAML_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
_SCALARS = ("string", "integer", "number", "boolean")


class FileEnd(NamedTuple):
    """One end of the pipeline. ``schema``: the JSON Schema of its configuration; None for a table.
    ``secret_word``: the annotation that marks secrets in it; None: every text is a secret.
    ``given``: values that are known, by property. ``hidden``: those of ``given`` that are secrets,
    which become variables. ``listed``: the schema is of the index, since the connector does not
    describe itself: the defaults in it may be those of another version."""

    use: str
    schema: dict[str, Any] | None = None
    secret_word: str | None = ""
    documentation_url: str | None = None
    given: Mapping[str, Any] = MappingProxyType({})
    hidden: frozenset[str] = frozenset()
    listed: bool = False


class FileVariable(NamedTuple):
    """A variable that the file refers to. ``property``: the path of the property that it is for."""

    name: str
    property: str
    secret: bool


class Question(NamedTuple):
    """A required property with a single value that is neither secret nor known."""

    name: str
    kind: str
    help: str
    choices: tuple[Any, ...]


def file_end(asked: AskedSpec) -> FileEnd:
    """Returns the end of a connector by its specification; by the settings that the index lists
    where the connector does not describe itself."""
    listed, url = listed_settings(asked), asked.spec.documentation_url
    if listed is not None:
        return FileEnd(asked.use, listed, LISTED_SECRET, url, listed=True)
    return FileEnd(asked.use, asked.spec.config_schema, asked.secret_word, url)


def questions(end: FileEnd) -> Iterator[Question]:
    """Yields the questions to the user before the file is written."""
    for name, each in properties_of(end.schema, end.schema):
        about = PropertyFacts(end.schema, each, end.secret_word)
        if not about.required or about.secret or about.kind not in _SCALARS:
            continue
        if name not in end.given and about.fixed is None and "default" not in about.node:
            yield Question(name, about.kind, about.help, about.choices)


def pipeline_text(
    name: str, source: FileEnd, destination: FileEnd, *, own_names: bool = False
) -> tuple[str, list[FileVariable]]:
    """Returns the file's text, which parses once its variables are set, and these variables in
    the order of the text. ``own_names``: they are named by the pipeline, not by the connector, so
    that two pipelines of a connector share none."""
    variables: list[FileVariable] = []
    lines = [
        "# A pipeline of Penstock. `penstock plan` shows what it would do, `penstock run` does it.",
        f"pipeline: {_value(name)}",
        "",
        "source:",
        *_end(source, "source", variables, name if own_names else None),
        "  # Which streams, and how. Absent: every stream, incremental if it can be.",
        "  # `penstock plan` lists them. For example:",
        "  # streams:",
        "  #   - { name: users, mode: upsert, primary_key: id }",
        "",
        "destination:",
        *_end(destination, "destination", variables, name if own_names else None),
    ]
    if any(variable.secret for variable in variables):
        lines[1:1] = ["# Secrets are variables: of the environment, or of a file (--env-file)."]
    return "\n".join(lines) + "\n", variables


def short_name(ref: "ConnectorRef") -> str:
    """Returns the name of a pipeline of this source: ``faker`` of ``airbyte:source-faker``."""
    word = ref.name or Path(ref.command[0] if ref.command else ref.target or "pipeline").stem
    short = re.sub(r"^(.*[-_.])?(source|tap)[-_.]", "", word.rpartition("/")[2])
    return re.sub(r"[^A-Za-z0-9_-]+", "-", short).strip("-") or "pipeline"


def _end(
    end: FileEnd, role: str, variables: list[FileVariable], owner: str | None
) -> Iterator[str]:
    yield f"  use: {_value(end.use)}"
    if end.schema is None:
        return
    if end.documentation_url:
        yield from _comment(f"Documentation: {end.documentation_url}", "  ")
    writer = _Writer(end, role, variables, owner)
    body = [*writer.body(end.schema, end.given, "    ", "config", 0)]
    known = {name for name, _ in properties_of(end.schema, end.schema)}
    body += [writer.other(k, v) for k, v in end.given.items() if k not in known]
    if end.listed:
        yield "  # This connector does not describe its configuration. The index lists these"
        yield "  # settings, perhaps of another version: see its documentation."
    elif not known:
        yield "  # This connector does not describe its configuration: see its documentation."
    if all(line.lstrip().startswith("#") for line in body):
        yield "  config: {}" if not body else "  # config:"
        yield from body
    else:
        yield "  config:"
        yield from body


class _Writer:
    """Writes the configuration of one end."""

    def __init__(
        self, end: FileEnd, role: str, variables: list[FileVariable], owner: str | None
    ) -> None:
        self._end, self._variables = end, variables
        self._open: set[int] = set()  # parts of the schema that are being written
        short = re.sub(r".*[:/]", "", end.use.partition("@")[0])
        self._prefix = _upper(short) or role.upper()
        if owner is not None:
            self._prefix = f"{_upper(owner)}_{role.upper()}"

    def body(
        self, schema: Any, given: Mapping[str, Any], indent: str, path: str, depth: int
    ) -> Iterator[str]:
        """Yields the lines of an object: required properties, then the rest as comments. Yields
        nothing where its schema refers back to an enclosing object."""
        own = {id(part) for part in parts(self._end.schema, [schema], ("allOf",))}
        if depth > _DEPTH or own & self._open:
            return
        self._open |= own
        yield from self._lines(schema, given, indent, path, depth)
        self._open -= own

    def _lines(
        self, schema: Any, given: Mapping[str, Any], indent: str, path: str, depth: int
    ) -> Iterator[str]:
        for name, each in properties_of(self._end.schema, schema):
            about = PropertyFacts(self._end.schema, each, self._end.secret_word)
            here = f"{path}.{name}"
            known = about.fixed is not None or ("default" in about.node and not about.secret)
            known = known and not self._end.listed
            if name in given or each.required or known:
                yield from _comment(_facts(about), indent)
                yield from self._entry(name, about, given.get(name), indent, here, depth)
            else:
                yield from _comment(_facts(about), indent)
                examples = about.node.get("examples") or [*self._default(about)]
                shown = next(map(_json, examples), "")
                if about.secret:
                    shown = f'"{self._variable(here, secret=True, note=False)}"'
                yield f"{indent}# {_key(name)}: {shown}".rstrip()

    def _default(self, about: PropertyFacts) -> Iterator[Any]:
        if self._end.listed and "default" in about.node:
            yield about.node["default"]

    def other(self, name: str, given: Any) -> str:
        """Writes a value of a property that the schema does not name."""
        if name in self._end.hidden:
            return f'    {_key(name)}: "{self._variable(f"config.{name}", secret=True)}"'
        return f"    {_key(name)}: {_json(given)}"

    def _entry(
        self, name: str, about: PropertyFacts, given: Any, indent: str, path: str, depth: int
    ) -> Iterator[str]:
        head = f"{indent}{_key(name)}:"
        if given is not None and not (about.secret or path[len("config.") :] in self._end.hidden):
            yield f"{head} {_json(given)}"
        elif about.fixed is not None:
            yield f"{head} {_json(about.fixed)}"
        elif not about.secret and "default" in about.node:
            yield f"{head} {_json(about.node['default'])}"
        elif variants := variants_of(self._end.schema, about.node):
            titles = [str(v.get("title") or f"variant {n}") for n, v in enumerate(variants, 1)]
            if len(variants) > 1:
                yield from _comment(f"This is {titles[0]}; or: {', '.join(titles[1:])}.", indent)
            inner = [*self.body(variants[0], {}, indent + "  ", path, depth + 1)]
            yield f"{head}" if _has_values(inner) else f"{head} {{}}"
            yield from inner
        elif about.kind == "array":
            item = PropertyFacts(
                self._end.schema,
                SchemaProperty(about.node.get("items"), True),
                self._end.secret_word,
            )
            inner = [*self.body(item.node, {}, indent + "    ", path, depth + 1)]
            if item.kind == "object" and _has_values(inner):
                yield head
                yield f"{indent}  -"
                yield from inner
            else:
                yield f"{head} [{self._placeholder(path, item, about.secret)}]"
        else:
            yield f"{head} {self._placeholder(path, about, about.secret)}"

    def _placeholder(self, path: str, about: PropertyFacts, secret: bool) -> str:
        """Writes a variable: quoted where the value is text, so that ``007`` stays text."""
        reference = self._variable(path, secret=secret or about.secret)
        return reference if about.kind in ("integer", "number", "boolean") else f'"{reference}"'

    def _variable(self, path: str, *, secret: bool, note: bool = True) -> str:
        name = f"{self._prefix}_{_upper(path.partition('.')[2])}"
        name = f"_{name}" if name[0].isdecimal() else name
        if note and all(known.name != name for known in self._variables):
            self._variables.append(FileVariable(name, path, secret))
        return f"${{{name}}}"


def _facts(about: PropertyFacts) -> str:
    text = about.help
    if len(about.choices) > 1:
        text += f" One of {', '.join(_json(choice) for choice in about.choices)}."
    return text.strip()


def _comment(text: str, indent: str) -> Iterator[str]:
    width = max(_WIDTH - len(indent), 40)
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"


def _has_values(lines: list[str]) -> bool:
    return any(not line.lstrip().startswith("#") for line in lines)


def _upper(text: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")


def _key(name: str) -> str:
    return name if _is_plain(name) and ":" not in name else _quoted(name)


def _value(text: str) -> str:
    """Writes a text as YAML: plain where it is one word, such as a connector's reference, else
    quoted."""
    return text if _is_plain(text) and text[-1] != ":" else _quoted(text)


def _json(value: Any) -> str:
    """Writes any value as JSON, which is YAML; a text that is one word has no quotes."""
    plain = isinstance(value, str) and _is_plain(value) and ":" not in value
    return value if plain else _quoted(value)


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _YAML_WORDS


def _quoted(value: Any) -> str:
    """Writes a text as JSON, in which ``${`` stays text."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${")

"""Reads YAML nodes into the structs of the pipeline file, and collects every fault.

Works by the structs' types. A struct whose keys are all valid is built and passed to the rules of
``config.cross_checks``, so that a faulty section hides no fault of another. Values of variables are
never shown: messages quote the file's own text (``${NAME}``), and nothing inside a connector's
``config`` (L10). Not here: the keys (``config.pipeline``). Neighbours: ``config.yaml_nodes`` parses
the nodes, ``config.converters`` reads sizes, modes and the like, ``config.load`` turns the faults
into one error.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi

from penstock.config import yaml_nodes
from penstock.config.did_you_mean import closest, hint
from penstock.config.protocol_spec import keys_of
from penstock.config.secret_texts import is_harmless, is_name, names_a_secret
from penstock.config.variables import IDENTITY, Substituted, VariableResolver
from penstock.config.yaml_nodes import Node, Scalar

BAD: EllipsisType = ...
"""Stands for the value of a faulty node; the fault is in ``problems``."""

Fault = tuple[str, str]
"""(key within the struct or "", message)"""

Rule = Callable[[Any], tuple[Any, list[Fault]]]
"""Completes a struct whose keys are each valid, and returns faults of their combination."""

_NOT_FROM_FILE = (
    "{path} keeps the default of {name}: .env has {name} too, but a file next to it does not "
    "change where progress is kept; set {name} in the environment or in --env-file, or write "
    "${{{name}}}"
)
_CONFIG = re.compile(r"(?:source|destination|transforms\[\d+\])\.config\b")
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


class Dialect(NamedTuple):
    """The rules of one format of the file. ``aliases``: (dotted path, word) -> word; ``defaults``:
    dotted path -> the default in this format; ``lenient``: unknown keys are warnings;
    ``null_is_absent``: a key without a value always means its default."""

    name: str
    rules: Mapping[type, tuple[Rule, ...]]
    aliases: Mapping[tuple[str, str], str] = {}
    defaults: Mapping[str, Any] = {}
    lenient: bool = False
    null_is_absent: bool = False


def join(path: str, key: str | int) -> str:
    """Returns the dotted path of a key or an item below ``path``: ``source.streams[0].name``,
    ``config["a.b"]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


Literal = Callable[["NodeReader", Node, str], Any]
"""A converter for a key with a syntax of its own: (reader, node, dotted path) -> value or BAD."""


class NodeReader:
    """Reads one document, once. ``literals``: converters by name (``config.converters``).
    ``folder``: where relative paths of files start; None: existence of files is not checked.
    ``starts_none``: no connector will be started, so the variables of a ``config`` may be unset.
    ``given``: the dotted paths of the keys that the file has."""

    def __init__(
        self,
        dialect: Dialect,
        variables: VariableResolver,
        literals: Mapping[str, Literal],
        *,
        lenient: bool,
        folder: Path | None = None,
        starts_none: bool = False,
    ) -> None:
        self.folder = folder
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[tuple[int, str]] = []
        self.secret_paths: list[str] = []
        self.secret_values: set[str] = set()
        self.given: set[str] = set()
        self.lines: dict[str, int] = {}
        self._dialect = dialect
        self._variables = variables
        self._literals = literals
        self._lenient = lenient or dialect.lenient
        self._starts_none = starts_none

    def read(self, root: Node, kind: type[Any]) -> Any:
        """Reads the document as a ``kind``; :data:`BAD` where a fault prevents it."""
        return self.value(root, _type_info(kind), "")

    def problem(self, node: Node, text: str) -> EllipsisType:
        """Records a fault at ``node``; returns :data:`BAD`."""
        self.problems.append((node.line, text))
        return BAD

    # -- scalars
    def scalar(self, node: Scalar, path: str, kept: tuple[str, ...] = ()) -> Substituted | None:
        """Resolves the variables of a scalar and records its secrets. None: a variable is missing,
        which is recorded as a fault."""
        identity = path.partition(".")[0] in IDENTITY
        found = self._variables.resolve(node, kept, identity=identity)
        for name in found.passed:
            self.warnings.append((node.line, _NOT_FROM_FILE.format(path=path, name=name)))
        may_lack = self._starts_none and _CONFIG.match(path) is not None
        faults = found.problems if may_lack else (*found.unset, *found.problems)
        for text in faults:
            self.problem(node, f"{text} ({path})")
        secrets = self._secrets(node, path, found)
        if secrets:
            self.secret_paths.append(path)
            self.secret_values.update(secrets)
        return None if faults else found

    def _secrets(self, node: Scalar, path: str, found: Substituted) -> list[str]:
        """Returns the texts of a scalar that must be masked: all of it where the file marks it
        secret, else the values of its variables, except those in a name and a harmless value that
        is the whole scalar."""
        if node.secret:
            return [text for text in (found.text, *found.secrets) if text]
        if is_name(path):
            return []
        harmless = len(found.secrets) == 1 and found.secrets[0] == found.text
        if harmless and not names_a_secret(path.rpartition(".")[2]):
            return [value for value in found.secrets if not is_harmless(value)]
        return list(found.secrets)

    def text(self, node: Node, path: str, what: str = "text", kept: tuple[str, ...] = ()) -> Any:
        """Reads a text. A number or a boolean is taken as written: a stream may be named 2024."""
        if not isinstance(node, Scalar):
            return self.wrong(node, path, what)
        found = self.scalar(node, path, kept)
        if found is None:
            return BAD
        return self.wrong(node, path, what) if found.value is None else found.text

    def plain(self, node: Node, path: str, what: str, wanted: type[Any] | tuple[Any, ...]) -> Any:
        """Reads a scalar of one of the ``wanted`` types; a boolean is not accepted as a number."""
        if not isinstance(node, Scalar):
            return self.wrong(node, path, what)
        found = self.scalar(node, path)
        if found is None:
            return BAD
        wrong_bool = isinstance(found.value, bool) and wanted is not bool
        if wrong_bool or not isinstance(found.value, wanted):
            return self.wrong(node, path, what)
        return found.value

    def wrong(self, node: Node, path: str, what: str) -> EllipsisType:
        """Records that the value at ``path`` must be ``what``; returns :data:`BAD`."""
        return self.problem(node, f"{path or 'the file'} must be {what}, not {shown(node)}")

    # -- structure
    def value(self, node: Node, kind: mi.Type, path: str) -> Any:
        """Reads a value of the type ``kind``."""
        if isinstance(kind, mi.Metadata):
            literal = (kind.extra or {}).get("literal")
            if literal is not None:
                return self._literals[literal](self, node, path)
            return self.value(node, kind.type, path)
        if isinstance(kind, mi.UnionType):
            return self.value(node, next(t for t in kind.types if not _is_none(t)), path)
        if isinstance(kind, mi.StructType):
            return self.struct(node, kind, path)
        if isinstance(kind, mi.CollectionType | mi.VarTupleType):
            return self.items(node, path, lambda n, p: self.value(n, kind.item_type, p))
        if isinstance(kind, mi.DictType):
            return self._dict(node, kind, path)
        if isinstance(kind, mi.LiteralType):
            return self.word(node, path, [str(v) for v in kind.values])
        if isinstance(kind, mi.BoolType):
            return self.plain(node, path, "true or false", bool)
        if isinstance(kind, mi.StrType):
            return self.text(node, path)
        return self.data(node, path)

    def word(self, node: Node, path: str, known: list[str]) -> Any:
        """Reads one of the words ``known``, or an alias of one."""
        text = self.text(node, path, f"one of {', '.join(known)}")
        if text is BAD:
            return BAD
        found = self._dialect.aliases.get((path, text), text)
        if found in known:
            return found
        if is_variable(node):
            return self.problem(node, f"{path}: {quoted(node)} holds none of {', '.join(known)}")
        return self.problem(
            node, f"{path} is '{text}', which is unknown; {hint(text, known, 'known')}"
        )

    def items(self, node: Node, path: str, read: Callable[[Node, str], Any]) -> Any:
        """Reads a list, each item by ``read``, into a tuple."""
        if not isinstance(node, yaml_nodes.Sequence):
            return self.wrong(node, path, "a list")
        self.lines.update((join(path, i), item.line) for i, item in enumerate(node.items))
        found = [read(item, join(path, i)) for i, item in enumerate(node.items)]
        return BAD if any(v is BAD for v in found) else tuple(found)

    def struct(self, node: Node, kind: mi.StructType, path: str) -> Any:
        """Reads a mapping into a struct and applies the dialect's rules to it."""
        if not isinstance(node, yaml_nodes.Mapping):
            if isinstance(node, Scalar) and any(f.encode_name == "use" for f in kind.fields):
                return self.problem(
                    node, f"{path} is {shown(node)}: write `{path}: {{use: {node.text}}}`"
                )
            return self.wrong(node, path, "a mapping of keys to values")
        fields, declared = _fields(kind)
        values: dict[str, Any] = {}
        nodes: dict[str, Node] = {}
        meant: set[str | None] = set()
        for key, value in self._entries(node):
            field = fields.get(key.text)
            if field is None:
                meant.add(self._unknown(key, path, fields))
                continue
            nodes[key.text] = value
            self.lines[join(path, key.text)] = key.line
            if self._is_absent(value, field, join(path, key.text)):
                continue
            self.given.add(join(path, key.text))
            values[field.name] = self.value(value, field.type, join(path, key.text))
        for name, field in fields.items():
            if not field.required or name in nodes:
                continue
            values[field.name] = BAD
            if name not in meant:
                self.problem(node, f"{path or 'the file'} needs the key '{name}'")
        if any(v is BAD for v in values.values()):
            return BAD
        if declared is not None:
            own = {n: values.pop(n) for n in list(values) if n not in kind.cls.__struct_fields__}
            values[declared] = {n: v for n, v in own.items() if v != fields[n].default}
        return self._apply_rules(kind.cls, kind.cls(**values), node, nodes, path)

    def _apply_rules(
        self, cls: type, built: Any, node: Node, nodes: Mapping[str, Node], path: str
    ) -> Any:
        sound = True
        for rule in self._dialect.rules.get(cls, ()):
            built, faults = rule(built)
            for key, text in faults:
                sound = False
                self.problem(nodes.get(key, node), f"{path}: {text}" if path else text)
        return built if sound else BAD

    def _is_absent(self, node: Node, field: mi.Field, path: str) -> bool:
        """Returns whether a key has no value, so that its default applies. Where an empty key could
        be misunderstood (``null`` of ``sections.key``), records a fault too."""
        if field.required or not isinstance(node, Scalar) or not node.plain:
            return False
        if "${" in node.text:
            found = self._variables.resolve(node, identity=path.partition(".")[0] in IDENTITY)
            if found.problems or found.unset or found.value is not None:
                return False
        elif node.text not in ("", "~", "null", "Null", "NULL"):
            return False
        kind = field.type
        while isinstance(kind, mi.Metadata):
            advice = (kind.extra or {}).get("null")
            if advice is not None and not self._dialect.null_is_absent:
                self.problem(node, f"{path} is empty: {advice}")
                return True
            kind = kind.type
        return True

    def _unknown(self, key: Scalar, path: str, known: Mapping[str, Any]) -> str | None:
        """Records an unknown key, as a warning or a fault. Returns the known key that was probably
        meant, if it is a fault."""
        place = f" in {path}" if path else ""
        if "config" in known and closest(key.text, known) is None:
            place += f" (a setting of the connector goes below `config`: {{{key.text}: ...}})"
        text = f"unknown key '{key.text}'{place}; {hint(key.text, known, 'known keys')}"
        if self._lenient:
            self.warnings.append((key.line, text))
            return None
        self.problems.append((key.line, text))
        return closest(key.text, known)

    def _entries(self, node: yaml_nodes.Mapping) -> list[tuple[Scalar, Node]]:
        """Returns the mapping's entries with those merged by ``<<``; its own entries win."""
        own = [(k, v) for k, v in node.items if k.text != "<<" or not k.plain]
        if len(own) == len(node.items):
            return own
        seen = {k.text for k, _ in own}
        for key, value in node.items:
            if key.text != "<<" or not key.plain:
                continue
            sources = value.items if isinstance(value, yaml_nodes.Sequence) else [value]
            for source in sources:
                if not isinstance(source, yaml_nodes.Mapping):
                    self.problem(key, "'<<' takes a mapping, usually an alias (*name)")
                    continue
                for k, v in self._entries(source):
                    if k.text not in seen:
                        seen.add(k.text)
                        own.append((k, v))
        return own

    # -- free data
    def _dict(self, node: Node, kind: mi.DictType, path: str) -> Any:
        if not isinstance(node, yaml_nodes.Mapping):
            return self.wrong(node, path, "a mapping of keys to values")
        found: dict[str, Any] = {}
        for key, value in self._entries(node):
            name = self.scalar(key, join(path, key.text))
            if name is None:
                found[key.text] = BAD
            elif name.text in found:
                if is_variable(key):
                    self.problem(key, f"key '{key.text}' means the same as one above ({path})")
            else:
                self.lines[join(path, key.text)] = key.line
                found[name.text] = self.value(value, kind.value_type, join(path, key.text))
        return BAD if any(v is BAD for v in found.values()) else found

    def data(self, node: Node, path: str) -> Any:
        """Reads free data, such as a connector's config: scalars, lists and dictionaries."""
        if isinstance(node, Scalar):
            found = self.scalar(node, path)
            return BAD if found is None else found.value
        if isinstance(node, yaml_nodes.Sequence):
            read = self.items(node, path, self.data)
            return BAD if read is BAD else list(read)
        return self._dict(node, _ANY_DICT, path)


def is_variable(node: Node) -> bool:
    """Returns whether the node is a scalar with a ``${``."""
    return isinstance(node, Scalar) and "${" in node.text


def quoted(node: Node) -> str:
    """Returns a scalar with a reference, quoted as the file writes it."""
    assert isinstance(node, Scalar)
    return node.text if len(node.text) <= 60 else "a variable"


def shown(node: Node) -> str:
    """Returns a node for a message: the file's own text, never a variable's value (L10)."""
    if isinstance(node, yaml_nodes.Sequence):
        return "a list"
    if isinstance(node, yaml_nodes.Mapping):
        return "a mapping"
    if is_variable(node):
        return f"what {quoted(node)} holds"
    if node.plain and node.text in ("", "~", "null", "Null", "NULL"):
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "..."
    return f"'{text}'" if node.plain else f"the text '{text}'"


@cache
def _type_info(kind: type[Any]) -> mi.Type:
    """Caches the type's description, which takes most of the time of reading a file."""
    return mi.type_info(kind)


def _fields(kind: mi.StructType) -> tuple[dict[str, mi.Field], str | None]:
    """Returns the keys of a section, in order, and the name of the field for the protocols' keys,
    if the section has one."""
    found: dict[str, mi.Field] = {}
    declared: str | None = None
    for field in kind.fields:
        extra = (field.type.extra or {}) if isinstance(field.type, mi.Metadata) else {}
        if "declared" in extra:
            declared = field.name
            found.update(keys_of(extra["declared"]))
        else:
            found[field.encode_name] = field
    return found, declared


def replace_at(struct: Any, path: str, value: Any) -> Any:
    """Returns ``struct`` with ``value`` at a dotted path of keys."""
    head, _, rest = path.partition(".")
    inner = replace_at(getattr(struct, head), rest, value) if rest else value
    return msgspec.structs.replace(struct, **{head: inner})


def _is_none(kind: mi.Type) -> bool:
    return isinstance(kind, mi.NoneType)


_ANY_DICT: mi.DictType = mi.type_info(dict[str, Any])  # pyright: ignore[reportAssignmentType]

"""Parses YAML text into nodes with line numbers.

Works on the parser's events, so that nesting is bounded (libyaml's own composer overflows the
stack), quoting is known, and tags construct nothing. Duplicate keys, tags, several documents and
aliases that expand without bound are faults; syntax errors are reworded. Not here: what the nodes
mean (``config.reader``).

The braces of ``${NAME}`` would end a plain scalar inside ``{ }`` and ``[ ]``: for the parser they
are replaced by private-use characters, one for one, so that positions stay right.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ConfigError

MAX_DEPTH = 100
MAX_ALIASED_NODES = 100_000
MAX_BYTES = 16 * 1024 * 1024

_TAGS = {
    "tag:yaml.org,2002:str": "str",
    "tag:yaml.org,2002:int": "plain",
    "tag:yaml.org,2002:float": "plain",
    "tag:yaml.org,2002:bool": "plain",
    "tag:yaml.org,2002:null": "plain",
    "tag:yaml.org,2002:map": "plain",
    "tag:yaml.org,2002:seq": "plain",
    "!": "str",
}

_SECRET = "!secret"  # the tag of a value that is masked under any key

_PLAIN_WORDS = (
    ("found character that cannot start any token", "this character cannot start a value"),
    ("mapping values are not allowed", "a second ':' on one line, or wrong indentation"),
    ("did not find expected ',' or ']'", "a list opened with '[' is not closed with ']'"),
    ("did not find expected ',' or '}'", "a mapping opened with '{' is not closed with '}'"),
    ("found unexpected end of stream", "a quoted text is not closed"),
    ("did not find expected '-' indicator", "expected '- ' here: a list and keys are mixed"),
    ("did not find expected key", "expected a key here; is the indentation right?"),
    ("did not find expected node content", "expected a value here"),
    ("found undefined alias", "this alias (*name) has no anchor (&name) above it"),
    ("could not find expected ':'", "expected ':' after a key"),
    ("found unknown escape character", "unknown escape in a double-quoted text"),
    ("did not find expected <document start>", "text after the end of the document"),
)

_REFERENCE = re.compile(r"\$\{([^{}\n]*)\}")


@dataclass(slots=True, eq=False)
class Scalar:
    """A scalar. ``plain``: unquoted and untagged, so that its text decides its type. ``secret``: it
    has the tag ``!secret``."""

    text: str
    plain: bool
    line: int
    secret: bool = False


@dataclass(slots=True, eq=False)
class Sequence:
    """A list of nodes."""

    line: int
    items: list["Node"] = field(default_factory=list["Node"])


@dataclass(slots=True, eq=False)
class Mapping:
    """A mapping of keys to nodes, in order; duplicate keys are kept."""

    line: int
    items: list[tuple[Scalar, "Node"]] = field(default_factory=list[tuple[Scalar, "Node"]])

    def get(self, key: str) -> "Node | None":
        return next((value for k, value in self.items if k.text == key), None)


Node = Scalar | Sequence | Mapping


@dataclass(slots=True)
class Document:
    """A parsed file, and the faults that leave its tree usable, as (line, text)."""

    root: Node
    problems: list[tuple[int, str]]


def decode(raw: bytes, name: str) -> str:
    """Decodes UTF-8 (a BOM is dropped). Raises ``ConfigError`` with the line of the first bad
    byte."""
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"{name} is {len(raw)} bytes long; a pipeline file has at most {MAX_BYTES}",
            code="config.too_large",
            hint="is it the right file?",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{name}:{line}: the file is not UTF-8 text",
            code="config.not_text",
            where=f"{name}:{line}",
            hint="save it as UTF-8",
        ) from None


def compose(text: str, name: str) -> Document:
    """Parses the only document in ``text``. Faults that leave the tree usable (a duplicate key, a
    tag) are returned with it; others raise ``ConfigError`` (``config.yaml``, ``config.empty``)."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    shielded, unshield = shield(text)
    composer = _Composer(name, unshield)
    try:
        for event in yaml.parse(shielded, Loader=loader):
            composer.take(event)
    except yaml.reader.ReaderError as error:
        raise _unreadable(text, name, error.character) from None
    except yaml.MarkedYAMLError as error:
        raise _malformed(text, name, error) from None
    if composer.root is None or _is_empty(composer.root):
        raise ConfigError(
            f"{name} is empty",
            code="config.empty",
            where=name,
            hint="a pipeline file needs at least pipeline, source and destination",
        )
    return Document(composer.root, composer.problems)


def shield(text: str) -> tuple[str, dict[int, str]]:
    """Returns the text with the braces of references replaced, and the table that restores them."""
    pairs = ((chr(c), chr(c + 1)) for c in range(0xE000, 0xF8FF, 2))
    left, right = next(pair for pair in pairs if pair[0] not in text and pair[1] not in text)
    shielded = _REFERENCE.sub(lambda m: f"${left}{m[1]}{right}", text)
    return shielded, {ord(left): "{", ord(right): "}"}


class _Composer:
    """Builds the tree from the parser's events, with a stack of its own."""

    def __init__(self, name: str, unshield: dict[int, str]) -> None:
        self.name = name
        self._unshield = unshield
        self.root: Node | None = None
        self.problems: list[tuple[int, str]] = []
        self._open: list[Sequence | Mapping] = []
        self._keys: list[Scalar | None] = []
        self._anchors: dict[str, Node] = {}
        self._sizes: dict[int, tuple[int, int]] = {}  # (values, depth) of a closed container
        self._aliased = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._attach(self._scalar(event, line), event.anchor)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            if event.tag == _SECRET:
                self.problems.append((line, "!secret stands before one value, not before several"))
            else:
                self._tag(event.tag, line)
            node = Mapping(line) if kind == "MappingStartEvent" else Sequence(line)
            self._attach(node, event.anchor)
            self._open.append(node)
            self._keys.append(None)
            if len(self._open) > MAX_DEPTH:
                raise self._fault(line, f"nested more than {MAX_DEPTH} levels deep")
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._keys.pop()
            self._close(self._open.pop())
        elif kind == "AliasEvent":
            self._attach(self._alias(event.anchor, line), None)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._fault(line, "a second document begins here; a file holds one")

    def _scalar(self, event: Any, line: int) -> Scalar:
        text, secret = event.value.translate(self._unshield), event.tag == _SECRET
        if secret:
            return Scalar(text, event.style in (None, ""), line, secret)
        form = self._tag(event.tag, line)
        plain = event.implicit[0] if event.tag is None else form == "plain"
        return Scalar(text, plain, line)

    def _tag(self, tag: str | None, line: int) -> str:
        if tag is None or tag in _TAGS:
            return "plain" if tag is None else _TAGS[tag]
        shown = tag.replace("tag:yaml.org,2002:", "!!")
        self.problems.append((line, f"tag {shown} is not allowed"))
        return "str"

    def _alias(self, anchor: str, line: int) -> Node:
        node = self._anchors.get(anchor)
        if node is None:
            raise self._fault(line, f"alias *{anchor} has no anchor &{anchor} above it")
        if any(node is container for container in self._open):
            raise self._fault(line, f"alias *{anchor} contains itself")
        size, depth = self._size(node)
        self._aliased += size
        if len(self._open) + depth > MAX_DEPTH:
            raise self._fault(line, f"nested more than {MAX_DEPTH} levels deep")
        if self._aliased > MAX_ALIASED_NODES:
            raise self._fault(line, f"aliases repeat more than {MAX_ALIASED_NODES} values")
        return node

    def _size(self, node: Node) -> tuple[int, int]:
        return self._sizes.get(id(node), (1, 0))

    def _close(self, node: Sequence | Mapping) -> None:
        values = node.items if isinstance(node, Sequence) else [v for _, v in node.items]
        sizes = [self._size(v) for v in values]
        self._sizes[id(node)] = (
            1 + sum(size for size, _ in sizes),
            1 + max((depth for _, depth in sizes), default=0),
        )
        if isinstance(node, Mapping):
            self._check_duplicates(node)

    def _check_duplicates(self, node: Mapping) -> None:
        first: dict[str, int] = {}
        for key, _ in node.items:
            if key.text in first:
                self.problems.append(
                    (key.line, f"key '{key.text}' is written twice; first in line "
                     f"{first[key.text]}")
                )  # fmt: skip
            first.setdefault(key.text, key.line)

    def _attach(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        container, key = self._open[-1], self._keys[-1]
        if isinstance(container, Sequence):
            container.items.append(node)
        elif key is not None:
            container.items.append((key, node))
            self._keys[-1] = None
        elif isinstance(node, Scalar):
            self._keys[-1] = node
        else:
            raise self._fault(node.line, "a key must be text, not a list or a mapping")

    def _fault(self, line: int, what: str) -> ConfigError:
        return ConfigError(
            f"{self.name}:{line}: {what}",
            problems=[f"{self.name}:{line}: {what}"],
            code="config.yaml",
            where=f"{self.name}:{line}",
            hint="correct this line; nothing after it was read",
        )


def _is_empty(root: Node) -> bool:
    return isinstance(root, Scalar) and root.plain and root.text in ("", "~", "null")


def _malformed(text: str, name: str, error: Any) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.splitlines()
    source = lines[line - 1] if line <= len(lines) else ""
    reason = str(error.problem or error)
    if source[: max(column, 1)].lstrip(" ").startswith("\t"):
        reason = "a tab in the indentation; YAML takes spaces only"
    else:
        reason = next((plain for raw, plain in _PLAIN_WORDS if raw in reason), reason)
    if error.context_mark is not None and error.context_mark.line + 1 < line:
        reason += f" (it began in line {error.context_mark.line + 1})"
    at = f"{name}:{line}:{column}"
    return ConfigError(
        f"{at}: {reason}",
        problems=[f"{at}: {reason}"],
        code="config.yaml",
        where=at,
        hint="correct the YAML; quote texts that hold : # { } [ ] , & * ! | > % @ or a backquote",
    )


def _unreadable(text: str, name: str, character: int | str) -> ConfigError:
    found = character if isinstance(character, str) else chr(character)
    line = text.count("\n", 0, max(text.find(found), 0)) + 1
    at = f"{name}:{line}"
    reason = f"control character U+{ord(found[:1]):04X} is not allowed"
    return ConfigError(
        f"{at}: {reason}",
        problems=[f"{at}: {reason}"],
        code="config.yaml",
        where=at,
        hint="remove it, or write it as an escape in double quotes",
    )

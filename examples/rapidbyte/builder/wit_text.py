"""Reads our WIT (the part of the language that it uses), and resolves it to plain structures that
can be compared with a component's types.

A type is a word (``u64``, ``string``) or a tuple: ("list", T), ("option", T), ("result", ok, err),
("record", ((name, T), ...)), ("enum", (name, ...)), ("variant", ((name, T | None), ...)).
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIT = Path(__file__).parents[3] / "wit" / "rapidbyte-connector.wit"
_TOKEN = re.compile(r"[a-z][a-z0-9-]*|->|[{}()<>:;,=._@]|[0-9.]+")

Type = Any


@dataclass
class Interface:
    uses: list[str] = field(default_factory=list)
    types: dict[str, Type] = field(default_factory=dict)  # as written, names unresolved
    functions: dict[str, tuple[list[tuple[str, Type]], Type]] = field(default_factory=dict)


@dataclass
class Wit:
    package: str
    interfaces: dict[str, Interface] = field(default_factory=dict)
    worlds: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)

    def resolved(self, interface: str, type_: Type) -> Type:
        own = self.interfaces[interface]
        if isinstance(type_, str):
            if type_ in own.types:
                return self.resolved(interface, own.types[type_])
            if type_ in own.uses:
                return self.resolved("types", self.interfaces["types"].types[type_])
            return type_
        if type_ is None:
            return None
        kind, *rest = type_
        if kind in ("record", "variant"):
            return (kind, tuple((n, self.resolved(interface, t)) for n, t in rest[0]))
        if kind == "enum":
            return type_
        return (kind, *(self.resolved(interface, t) for t in rest))

    def function(self, interface: str, name: str) -> Type:
        params, result = self.interfaces[interface].functions[name]
        return (
            tuple((n, self.resolved(interface, t)) for n, t in params),
            self.resolved(interface, result),
        )


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(re.sub(r"//.*", "", text))
        self.at = 0

    def take(self, *expected: str) -> str:
        token = self.tokens[self.at]
        assert not expected or token in expected, (token, expected, self.at)
        self.at += 1
        return token

    def has(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def names(self, end: str) -> list[str]:
        out = []
        while not self.has(end):
            out.append(self.take())
            self.has(",")
        return out

    def type(self) -> Type:
        word = self.take()
        if word == "_":
            return None
        if not self.has("<"):
            return ("result", None, None) if word == "result" else word
        inner = []
        while not self.has(">"):
            inner.append(self.type())
            self.has(",")
        return (word, *inner, *([None] if word == "result" and len(inner) == 1 else []))

    def members(self, *, may_be_bare: bool) -> tuple[tuple[str, Type], ...]:
        out = []
        while not self.has("}"):
            name = self.take()
            if may_be_bare:
                type_ = self.type() if self.has("(") else None
                if type_ is not None:
                    self.take(")")
            else:
                self.take(":")
                type_ = self.type()
            out.append((name, type_))
            self.has(",")
        return tuple(out)

    def interface(self) -> Interface:
        out = Interface()
        self.take("{")
        while not self.has("}"):
            word = self.take()
            if word == "use":
                self.take("types"), self.take("."), self.take("{")
                out.uses += self.names("}")
                self.take(";")
            elif word == "type":
                name = self.take()
                self.take("=")
                out.types[name] = self.type()
                self.take(";")
            elif word in ("enum", "record", "variant"):
                name = self.take()
                self.take("{")
                out.types[name] = (
                    ("enum", tuple(self.names("}")))
                    if word == "enum"
                    else (word, self.members(may_be_bare=word == "variant"))
                )
            else:
                self.take(":"), self.take("func"), self.take("(")
                params = []
                while not self.has(")"):
                    param = self.take()
                    self.take(":")
                    params.append((param, self.type()))
                    self.has(",")
                result = self.type() if self.has("->") else None
                self.take(";")
                out.functions[word] = (params, result)
        return out


def read(path: Path = WIT) -> Wit:
    text = path.read_text()
    package = re.search(r"^package ([^;]+);", text, re.M)
    assert package is not None
    wit = Wit(package[1])
    parser = _Parser(text[package.end() :])
    while parser.at < len(parser.tokens):
        word = parser.take("interface", "world")
        name = parser.take()
        if word == "interface":
            wit.interfaces[name] = parser.interface()
            continue
        parser.take("{")
        imports, exports = [], []
        while not parser.has("}"):
            (imports if parser.take("import", "export") == "import" else exports).append(
                parser.take()
            )
            parser.take(";")
        wit.worlds[name] = (imports, exports)
    return wit

"""A core module becomes a v4 component, with nothing but wasmtime and our own WIT.

The core module uses wit-component's names: it imports ``HOST``'s functions and exports
``INTERFACE#FUNCTION``, ``memory`` and ``cabi_realloc``. The component around it is made as text
from the WIT (the canonical ABI's flattening included), then the module is spliced in. For guests in
C and alike; a toolchain that makes components by itself (componentize-py, Rust) needs none of it.
Neighbours: ``wit_text`` (reads the WIT), ``guests`` (calls this).
"""

from boundary import abi, binary
from wit_text import Type, Wit, read

_FLAT = {"u64": ["i64"], "string": ["i32", "i32"]}
_EXPORTED_TYPES = (
    "connector-error", "run-request", "run-summary", "session", "validation-report",
)  # fmt: skip
_OPTIONS = "(memory $memory) (realloc $realloc) string-encoding=utf8"


def flat(type_: Type) -> list[str]:
    """Core types of a parameter, after the component model's ``flatten_type``."""
    if isinstance(type_, str):
        return _FLAT.get(type_, ["i32"])
    kind, *rest = type_
    if kind == "list":
        return ["i32", "i32"]
    if kind == "option":
        return ["i32", *flat(rest[0])]
    if kind == "record":
        return [core for _, field in rest[0] for core in flat(field)]
    if kind == "enum":
        return ["i32"]
    raise AssertionError(type_)


class _Text:
    """Component text in which every composite type gets a name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[Type, str] = {}

    def refer(self, type_: Type) -> str:
        if isinstance(type_, str):
            return type_ if type_ in ("bool", "string") or (type_[0] in "us" and (
                type_[1:].isdigit()
            )) else f"${type_}"  # fmt: skip
        if type_ not in self._known:
            kind, *rest = type_
            body = self.body(kind, rest)
            name = f"$c{len(self._known)}"
            self._known[type_] = name
            self.lines.append(f"(type {name} {body})")
        return self._known[type_]

    def body(self, kind: str, rest: list[Type]) -> str:
        if kind in ("list", "option"):
            return f"({kind} {self.refer(rest[0])})"
        if kind == "result":
            ok = "" if rest[0] is None else " " + self.refer(rest[0])
            return f"(result{ok} (error {self.refer(rest[1])}))"
        if kind == "enum":
            return "(enum " + " ".join(f'"{n}"' for n in rest[0]) + ")"
        if kind == "record":
            return "(record " + " ".join(f'(field "{n}" {self.refer(t)})' for n, t in rest[0]) + ")"
        cases = ((n, "" if t is None else " " + self.refer(t)) for n, t in rest[0])
        return "(variant " + " ".join(f'(case "{n}"{t})' for n, t in cases) + ")"

    def function(self, params: list[tuple[str, Type]], result: Type) -> str:
        given = " ".join(f'(param "{n}" {self.refer(t)})' for n, t in params)
        gives = "" if result is None else f" (result {self.refer(result)})"
        return f"(func {given}{gives})"


def imports_text(wit: Wit, types: str = abi.TYPES, host: str = abi.HOST) -> str:
    declared = _Text()
    for name, type_ in wit.interfaces["types"].types.items():
        body = type_ if isinstance(type_, str) else declared.body(type_[0], list(type_[1:]))
        declared.lines.append(f'(type $d-{name} {body}) (export "{name}" (type ${name} '
                              f"(eq $d-{name})))")  # fmt: skip
    used = _Text()
    own = wit.interfaces["host"]
    for name in own.uses:
        used.lines.append(f"(alias outer 1 ${name} (type $o-{name}))"
                          f'(export "{name}" (type ${name} (eq $o-{name})))')  # fmt: skip
    for name, (params, result) in own.functions.items():
        text = used.function(params, result)
        used.lines.append(f'(type $f-{name} {text}) (export "{name}" (func (type $f-{name})))')
    aliases = "\n".join(
        f'(alias export $types "{name}" (type ${name}))' for name in wit.interfaces["types"].types
    )
    inner, outer = "\n".join(declared.lines), "\n".join(used.lines)
    return (
        f'(import "{types}" (instance $types {inner}))\n{aliases}\n'
        f'(import "{host}" (instance $host {outer}))'
    )


def _core_signatures(wit: Wit) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for name in wit.interfaces["host"].functions:
        params, result = wit.function("host", name)
        cores = [core for _, t in params for core in flat(t)]
        out[name] = cores + ([] if result is None else ["i32"])
    return out


def component_text(role: str, wit: Wit) -> str:
    signatures = _core_signatures(wit)
    names = list(signatures)
    numbered = list(enumerate(names))
    count = len(names)

    def shim(i: int, n: str) -> str:
        gets = " ".join(f"(local.get {k})" for k in range(len(signatures[n])))
        return (
            f"(type $t{i} (func (param {' '.join(signatures[n])})))"
            f'(func (export "{i}") (type $t{i}) {gets}'
            f" (call_indirect (type $t{i}) (i32.const {i})))"
        )

    fixed = " ".join(
        f'(import "" "{i}" (func $f{i} (param {" ".join(signatures[n])})))' for i, n in numbered
    )
    out = [
        "(component",
        imports_text(wit),
        "(core module $main)",
        f'(core module $shim (table (export "$imports") {count} funcref)',
        *(shim(i, n) for i, n in numbered),
        ")",
        f'(core module $fixup {fixed} (import "" "$imports" (table {count} funcref))'
        f" (elem (i32.const 0) func {' '.join(f'$f{i}' for i, _ in numbered)}))",
        "(core instance $shim (instantiate $shim))",
        *(f'(alias core export $shim "{i}" (core func $sh{i}))' for i, _ in numbered),
        "(core instance $h " + " ".join(f'(export "{n}" (func $sh{i}))' for i, n in numbered) + ")",
        f'(core instance $main (instantiate $main (with "{abi.HOST}" (instance $h))))',
        '(alias core export $main "memory" (core memory $memory))',
        '(alias core export $main "cabi_realloc" (core func $realloc))',
        *(
            f'(alias export $host "{n}" (func $hf{i}))'
            f" (core func $lo{i} (canon lower (func $hf{i}) {_OPTIONS}))"
            for i, n in numbered
        ),
        '(alias core export $shim "$imports" (core table $tbl))',
        '(core instance $fx (export "$imports" (table $tbl)) '
        + " ".join(f'(export "{i}" (func $lo{i}))' for i, _ in numbered)
        + ")",
        '(core instance (instantiate $fixup (with "" (instance $fx))))',
        _exports_text(role, wit),
        ")",
    ]
    return "\n".join(out)


def _exports_text(role: str, wit: Wit) -> str:
    exported = _Text()
    named = abi.interface(role)
    lines: list[str] = []
    for name, (params, result) in wit.interfaces[role].functions.items():
        text = exported.function(params, result)
        lines.append(
            f'(type $xt-{name} {text}) (alias core export $main "{named}#{name}" '
            f"(core func $xc-{name})) (func $x-{name} (type $xt-{name}) "
            f"(canon lift (core func $xc-{name}) {_OPTIONS}))"
        )
    types = " ".join(f'(export "{t}" (type ${t}))' for t in _EXPORTED_TYPES)
    functions = " ".join(
        f'(export "{n}" (func $x-{n}))' for n in wit.interfaces[role].functions
    )  # fmt: skip
    out = [*exported.lines, *lines, f"(instance $out {types} {functions})"]
    return "\n".join([*out, f'(export "{named}" (instance $out))'])


def componentize(core: bytes, role: str) -> bytes:
    """Needs wasmtime, which reads the text."""
    from wasmtime import wat2wasm

    out, first = [binary.COMPONENT], True
    for number, body in binary.sections(bytes(wat2wasm(component_text(role, read())))):
        if number == 1 and first:
            body, first = memoryview(core), False
        out.append(binary.encode_section(number, body))
    return b"".join(out)

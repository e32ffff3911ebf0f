"""Wraps a component so that its bytes cross the boundary fast: generates an outer component that
nests it, unchanged, next to an adapter.

The outer component imports what the guest imports (its import section, byte for byte) and
``wit.FAST``; the guest's host import is bound to the adapter (``adapter.wat``), its other imports
to the outer ones; its exported interfaces are exported again. Where the guest's binary does not
allow this, ``wrap`` raises :class:`Unsupported` and the guest runs unwrapped, which is slow
(``rapidbyte.guest.host_imports``).
"""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from wasmtime import wat2wasm

from penstock.protocols.rapidbyte.fastpath.packing import PACKING, PIECE, SLACK, packed_size
from penstock.protocols.rapidbyte.wire.wasm_binary import (
    COMPONENT,
    MalformedBinary,
    encode_name,
    encode_section,
    is_component,
    leb128,
    read_leb128,
    sections,
)
from penstock.protocols.rapidbyte.wire.wit import FAST, HOST

OUT_OF_MEMORY = "out_of_transfer_memory"
"""A function of the adapter: in the trace of a trap it shows that memory could not grow."""

# The adapter's memory: first a return area of lifted functions, one of lowered calls, then these.
_RET, _SCRATCH = range(1024, 2048), range(2048, 4096)
_WRITES = 1 << 16  # gathered writes, or a read that fits
_TEXT = _WRITES + PIECE + (1 << 12)
_ARENA = _TEXT + packed_size(PIECE) + SLACK + 0xFFFF & ~0xFFFF

# Section numbers and sorts of the component model's binary format.
_COMPONENTS, _INSTANCES, _ALIASES, _TYPES, _IMPORTS, _EXPORTS = 4, 5, 6, 7, 10, 11
_SORT_CORE, _SORT_TYPE, _SORT_COMPONENT, _SORT_INSTANCE = 0, 3, 4, 5
_OUTER_ALIAS = 2


class Unsupported(ValueError):
    """Raised for a guest that cannot be wrapped; the message has the reason."""


@dataclass
class _Outline:
    """The parts of a guest that wrapping needs: its import prologue, and the sizes of its index
    spaces after it."""

    prologue: list[bytes] = field(default_factory=list[bytes])
    types: int = 0
    components: int = 0
    instances: int = 0
    imports: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    exports: list[str] = field(default_factory=list[str])


class _SectionReader:
    """A cursor over a section's body."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def number(self) -> int:
        value, self._at = read_leb128(self._body, self._at)
        return value

    def byte(self) -> int:
        if self._at >= len(self._body):
            raise MalformedBinary("a section ends in the middle")
        self._at += 1
        return self._body[self._at - 1]

    def text(self) -> str:
        size = self.number()
        raw = bytes(self._body[self._at : self._at + size])
        if len(raw) != size:
            raise MalformedBinary("a name ends in the middle")
        self._at += size
        return raw.decode()

    def extern_name(self) -> str:
        form = self.byte()
        if form not in (0, 1):
            raise Unsupported("a name of a newer form")
        text = self.text()
        if form == 1:
            self.text()  # its version, as a suffix
        return text


def wrap(guest: bytes) -> bytes:
    """Builds the outer component of a guest. Raises :class:`Unsupported`."""
    try:
        if not is_component(guest):
            raise Unsupported("not a component")
        outline = _outline(guest)
    except (MalformedBinary, UnicodeDecodeError) as e:
        raise Unsupported(str(e)) from e
    if HOST not in (nm for nm, _ in outline.imports):
        raise Unsupported(f"it does not import {HOST}")
    if FAST in (nm for nm, _ in outline.imports):
        raise Unsupported(f"it imports {FAST}")
    return b"".join(_assembled(guest, outline))


def _outline(guest: bytes) -> _Outline:
    outline = _Outline()
    prologue = True
    for number, body in sections(guest):
        if number == 0:
            continue
        prologue = prologue and number in (_ALIASES, _TYPES, _IMPORTS)
        if prologue:
            outline.prologue.append(encode_section(number, body))
            _count(outline, number, _SectionReader(body))
        elif number == _IMPORTS:
            raise Unsupported("an import after its first definition")
        elif number == _EXPORTS:
            _collect_exports(outline, _SectionReader(body))
    return outline


def _count(outline: _Outline, number: int, reader: _SectionReader) -> None:
    entries = reader.number()
    if number == _TYPES:
        outline.types += entries
        return
    for _ in range(entries):
        if number == _IMPORTS:
            _count_import(outline, reader)
        else:
            _count_alias(outline, reader)


def _count_import(outline: _Outline, reader: _SectionReader) -> None:
    imported = reader.extern_name()
    kind = reader.byte()
    if kind != _SORT_INSTANCE:
        raise Unsupported(f"the import {imported} is not an instance")
    reader.number()
    outline.imports.append((imported, outline.instances))
    outline.instances += 1


def _count_alias(outline: _Outline, reader: _SectionReader) -> None:
    sort = reader.byte()
    if sort == _SORT_CORE:
        reader.byte()
    target = reader.byte()
    reader.number()
    if target == _OUTER_ALIAS:
        reader.number()
    else:
        reader.text()
    outline.types += sort == _SORT_TYPE
    outline.instances += sort == _SORT_INSTANCE
    outline.components += sort == _SORT_COMPONENT


def _collect_exports(outline: _Outline, reader: _SectionReader) -> None:
    for _ in range(reader.number()):
        exported = reader.extern_name()
        sort = reader.byte()
        if sort == _SORT_CORE:
            reader.byte()
        reader.number()
        if reader.byte():
            raise Unsupported(f"the export {exported} has a type of its own")
        if sort == _SORT_INSTANCE:
            outline.exports.append(exported)


def _assembled(guest: bytes, o: _Outline) -> list[bytes]:
    fast, adapter, inner = o.instances, o.instances + 1, o.instances + 2
    one, given = leb128(1), b"\x05"

    def argument(nm: str, instance: int) -> bytes:
        return encode_name(nm) + given + leb128(instance)

    arguments = [argument(nm, adapter if nm == HOST else i) for nm, i in o.imports]
    instances = (
        leb128(2)
        + b"\0" + leb128(o.components) + one + argument(FAST, fast)
        + b"\0" + leb128(o.components + 1) + leb128(len(arguments)) + b"".join(arguments)
    )  # fmt: skip
    aliases = [b"\x05\0" + leb128(inner) + encode_name(nm) for nm in o.exports]
    return [
        COMPONENT,
        *o.prologue,
        encode_section(_TYPES, one + _fast_type()),
        encode_section(_IMPORTS, one + b"\0" + encode_name(FAST) + given + leb128(o.types)),
        encode_section(_COMPONENTS, _adapter()),
        encode_section(_COMPONENTS, guest),
        encode_section(_INSTANCES, instances),
        encode_section(_ALIASES, leb128(len(aliases)) + b"".join(aliases)),
        *(
            encode_section(
                _EXPORTS, one + b"\0" + encode_name(nm) + given + leb128(inner + 1 + i) + b"\0"
            )
            for i, nm in enumerate(o.exports)
        ),
    ]


@cache
def _adapter() -> bytes:
    text = _resource("adapter.wat").format(
        TYPES=_resource("adapter_types.wat"),
        PACKING=PACKING,
        PIECE=PIECE,
        SLACK=SLACK,
        RET=_RET,
        SCRATCH=_SCRATCH,
        WRITES=_WRITES,
        TEXT=_TEXT,
        ARENA=_ARENA,
        PAGES=(_ARENA >> 16) + 1,
    )
    return bytes(wat2wasm(text))


@cache
def _fast_type() -> bytes:
    """Returns the instance type of ``FAST``, as one entry of a type section."""
    types = _resource("adapter_types.wat")
    probe = bytes(wat2wasm(f'(component (import "{FAST}" (instance {types})))'))
    for number, body in sections(probe):
        if number == _TYPES:
            entries, at = read_leb128(body, 0)
            if entries == 1:
                return bytes(body[at:])
    raise MalformedBinary("the fast interface's type")


def _resource(name: str) -> str:
    return files("penstock.protocols.rapidbyte.fastpath").joinpath(name).read_text("ascii")

"""The outer form of WebAssembly binaries: sections, LEB128 numbers, names.

Enough to find custom sections and to put a component into another one; what code or types mean is
not read here. Neighbours: ``rapidbyte.declared.manifest`` (custom sections),
``rapidbyte.fastpath.wrap`` (nesting). Sources: the WebAssembly core specification, section 5.5; the
component model's ``Binary.md``.
"""

from collections.abc import Iterator

COMPONENT = b"\0asm\x0d\0\x01\0"
MODULE = b"\0asm\x01\0\0\0"
CUSTOM, CORE_MODULE, NESTED_COMPONENT = 0, 1, 4
_MEMORIES = 5  # in a core module
_LONGEST_LEB = 5  # bytes of a u32


class Malformed(ValueError):
    """The bytes are not a WebAssembly binary, or one that ends in the middle."""


def leb(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the place after it."""
    result = 0
    for i in range(_LONGEST_LEB):
        if at + i >= len(data):
            raise Malformed("a number ends in the middle")
        byte = data[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return result, at + i + 1
    raise Malformed("a number is too long")


def uleb(number: int) -> bytes:
    out = bytearray()
    while True:
        low = number & 0x7F
        number >>= 7
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def name(text: str) -> bytes:
    raw = text.encode()
    return uleb(len(raw)) + raw


def section(number: int, body: bytes | memoryview) -> bytes:
    return b"".join((bytes([number]), uleb(len(body)), body))


def is_component(data: bytes | memoryview) -> bool:
    return bytes(data[:8]) == COMPONENT


def sections(data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """(number, body) of each section of a component or of a core module, in order."""
    view = memoryview(data)
    if bytes(view[:8]) not in (COMPONENT, MODULE):
        raise Malformed("not a WebAssembly binary")
    at = 8
    while at < len(view):
        number = view[at]
        size, at = leb(view, at + 1)
        if at + size > len(view):
            raise Malformed("a section ends in the middle")
        yield number, view[at : at + size]
        at += size


def custom_sections(data: bytes | memoryview, depth: int = 8) -> Iterator[tuple[str, memoryview]]:
    """(name, content) of every custom section, also of nested components and core modules, in the
    order in which they lie in the file."""
    component = is_component(data)
    for number, body in sections(data):
        if number == CUSTOM:
            size, at = leb(body, 0)
            if at + size > len(body):
                raise Malformed("a custom section's name ends in the middle")
            yield bytes(body[at : at + size]).decode(errors="replace"), body[at + size :]
        elif component and number in (CORE_MODULE, NESTED_COMPONENT) and depth:
            yield from custom_sections(body, depth - 1)


def memory_count(data: bytes | memoryview, depth: int = 8) -> int:
    """How many memories the core modules in a component define."""
    if not is_component(data):
        return sum(leb(body, 0)[0] for number, body in sections(data) if number == _MEMORIES)
    return sum(
        memory_count(body, depth - 1)
        for number, body in sections(data)
        if number in (CORE_MODULE, NESTED_COMPONENT) and depth
    )

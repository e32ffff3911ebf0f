"""Reads and writes the outer format of WebAssembly binaries: sections, LEB128 numbers, names.

Enough to find custom sections and to nest a component in another one. Not here: the content of code
and type sections. Neighbours: ``rapidbyte.declared.manifest`` (custom sections),
``rapidbyte.fastpath.wrap`` (nesting). Sources: the WebAssembly core specification, section 5.5; the
component model's ``Binary.md``.
"""

from collections.abc import Iterator

COMPONENT = b"\0asm\x0d\0\x01\0"
MODULE = b"\0asm\x01\0\0\0"
CUSTOM, CORE_MODULE, NESTED_COMPONENT = 0, 1, 4
_MEMORIES = 5  # in a core module
_LONGEST_LEB = 5  # bytes of a u32


class MalformedBinary(ValueError):
    """Raised for bytes that are not a WebAssembly binary, or a truncated one."""


def read_leb128(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Decodes an unsigned LEB128 number. Returns it and the offset after it. Raises
    ``MalformedBinary``."""
    result = 0
    for i in range(_LONGEST_LEB):
        if at + i >= len(data):
            raise MalformedBinary("a number ends in the middle")
        byte = data[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if not byte & 0x80:
            return result, at + i + 1
    raise MalformedBinary("a number is too long")


def leb128(number: int) -> bytes:
    """Encodes an unsigned LEB128 number."""
    out = bytearray()
    while True:
        low = number & 0x7F
        number >>= 7
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def encode_name(text: str) -> bytes:
    """Encodes a name: its length in bytes, then UTF-8."""
    raw = text.encode()
    return leb128(len(raw)) + raw


def encode_section(number: int, body: bytes | memoryview) -> bytes:
    """Encodes a section: its id, its length, its body."""
    return b"".join((bytes([number]), leb128(len(body)), body))


def is_component(data: bytes | memoryview) -> bool:
    """Returns whether the binary's header is that of a component, not of a core module."""
    return bytes(data[:8]) == COMPONENT


def sections(data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yields (id, body) of each section of a component or a core module, in order. Raises
    ``MalformedBinary``."""
    view = memoryview(data)
    if bytes(view[:8]) not in (COMPONENT, MODULE):
        raise MalformedBinary("not a WebAssembly binary")
    at = 8
    while at < len(view):
        number = view[at]
        size, at = read_leb128(view, at + 1)
        if at + size > len(view):
            raise MalformedBinary("a section ends in the middle")
        yield number, view[at : at + size]
        at += size


def custom_sections(data: bytes | memoryview, depth: int = 8) -> Iterator[tuple[str, memoryview]]:
    """Yields (name, content) of every custom section in file order, also of nested components and
    core modules down to ``depth`` levels. Raises ``MalformedBinary``."""
    component = is_component(data)
    for number, body in sections(data):
        if number == CUSTOM:
            size, at = read_leb128(body, 0)
            if at + size > len(body):
                raise MalformedBinary("a custom section's name ends in the middle")
            yield bytes(body[at : at + size]).decode(errors="replace"), body[at + size :]
        elif component and number in (CORE_MODULE, NESTED_COMPONENT) and depth:
            yield from custom_sections(body, depth - 1)


def memory_count(data: bytes | memoryview, depth: int = 8) -> int:
    """Counts the memories that a core module, or the core modules in a component, define."""
    if not is_component(data):
        return sum(
            read_leb128(body, 0)[0] for number, body in sections(data) if number == _MEMORIES
        )
    return sum(
        memory_count(body, depth - 1)
        for number, body in sections(data)
        if number in (CORE_MODULE, NESTED_COMPONENT) and depth
    )

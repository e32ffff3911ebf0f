"""The same JSON messages as other programs may write them, for tests that say that it changes
nothing."""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

LOOKS = (
    '{"type":"STATE"}', '"type":"RECORD"', '{"type": "RECORD", "record": {', "a:null", '":', "}\n{",
    '"stream":"a"', "\\", "REC\\u004fRD", "\u2028é😀\t",
)  # fmt: skip
"""Texts that look like something else."""

_SPACES = ("",), ("", " "), ("", "  ", "\t"), (" ",), ("\r", "")
_STRANGE = (
    *LOOKS,
    1,
    None,
    12345678901234567890,
    {"type": "STATE", "record": {"stream": "b"}},
    [{}],
)


def value(choose: Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kind = choose.random()
    if depth < 3 and kind < 0.2:
        names = choose.sample(["p", "stream", "type", "data", "record", 'k":'], 2)
        return {name: value(choose, depth + 1) for name in names}
    if depth < 3 and kind < 0.4:
        return [value(choose, depth + 1) for _ in range(choose.randrange(3))]
    return choose.choice([*LOOKS, None, True, -5, 1.25, 12345678901234567890])


def plainly(messages: Sequence[Any]) -> bytes:
    """A message a line."""
    return b"".join(json.dumps(m, separators=(",", ":")).encode() + b"\n" for m in messages)


def otherwise(messages: Sequence[Any], choose: Random, content: frozenset[str]) -> list[bytes]:
    """Blocks of the same messages: white space, escapes, keys in another order, twice or besides,
    blank lines, a byte order mark. ``content``: properties whose values are not protocol, of which
    the order and the keys stay."""
    writer = _Writer(choose, content)
    lines = [choose.choice([b"", b"", b"\xef\xbb\xbf"])]
    for message in messages:
        around = choose.choice(["", "", " ", "\t"]), choose.choice(["", "", "\r", " \r"])
        lines.append((around[0] + writer.text_of(message, True) + around[1]).encode() + b"\n")
        lines.append(choose.choice([b"", b"", b"", b"\n", b" \r\n"]))
    output = b"".join(lines)
    size = choose.choice([1, 7, 50, len(output)])
    return [output[i : i + size] for i in range(0, len(output), size)]


def without_strange(data: Any) -> Any:
    """A message without the keys that :func:`otherwise` added."""
    if isinstance(data, dict):
        return {k: without_strange(v) for k, v in data.items() if not k.startswith("x-")}
    return [without_strange(v) for v in data] if isinstance(data, list) else data


class _Writer:
    def __init__(self, choose: Random, content: frozenset[str]) -> None:
        self._choose = choose
        self._content = content
        self._spaces = choose.choice(_SPACES)
        self._escaped = choose.choice([0, 0.1, 0.5])

    def text_of(self, data: Any, protocol: bool) -> str:
        match data:
            case dict():
                pairs = list(data.items())
                if protocol:
                    pairs += self._besides()
                    self._choose.shuffle(pairs)
                    pairs = self._twice(pairs)
                return self._inside(map(self._pair, pairs, [protocol] * len(pairs)), "{}")
            case list():
                return self._inside((self.text_of(item, protocol) for item in data), "[]")
            case str():
                return '"' + "".join(map(self._character, data)) + '"'
            case _:
                return json.dumps(data)

    def _pair(self, pair: tuple[str, Any], protocol: bool) -> str:
        key, of = pair
        inner = protocol and key not in self._content and not key.startswith("x-")
        return f"{self.text_of(key, False)}{self._space()}:{self._space()}{self.text_of(of, inner)}"

    def _twice(self, pairs: list[Any]) -> list[Any]:
        return [*pairs[:1], *pairs] if self._choose.random() < 0.2 else pairs

    def _besides(self) -> Iterator[tuple[str, Any]]:
        if self._choose.random() < 0.4:
            yield f"x-{self._choose.randrange(9)}", self._choose.choice(_STRANGE)

    def _inside(self, parts: Iterator[str], marks: str) -> str:
        between = f"{self._space()},{self._space()}"
        return marks[0] + self._space() + between.join(parts) + self._space() + marks[1]

    def _space(self) -> str:
        return self._choose.choice(self._spaces)

    def _character(self, character: str) -> str:
        if ord(character) < 32 or self._choose.random() < self._escaped:
            units = character.encode("utf-16-be").hex()
            units = units.upper() if self._choose.random() < 0.5 else units
            return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        return f"\\{character}" if character in '"\\' else character

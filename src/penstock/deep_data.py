"""Distinguishes a recursion over too deeply nested data from an endless recursion of a program.

Python raises ``RecursionError`` for both. The trace shows which one it was. A native decoder that
gives up leaves no function that calls itself in the trace; a library's walk leaves only the
library's own; a walk of ours starts at a value that is about as deep as the walk went. An endless
recursion has no such value. Not here: the user's message (``errors.not_ours``); the edges of
connectors, whose errors name what was nested (``FAULTS`` in ``protocols.stdio.json_lines``).
Imports nothing of ours, so that the error tree can use it.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, cast

_WORDS = "maximum recursion depth exceeded"  # of the interpreter, and of native decoders
_REPEATED = 20  # calls of one function in a trace, from which it counts as recursive
_SAME_LEVEL = 4  # calls of one function that a walk may need for one level of its data
_MOST_VALUES = 2_000_000  # checked values
_ATOMS = (str, bytes, bytearray, int, float, type, CodeType, FrameType, FunctionType, MethodType,
          ModuleType, TracebackType, type(None))  # fmt: skip
_OURS = str(Path(__file__).parent)


def is_nested_too_deeply(error: RecursionError) -> bool:
    """Returns whether ``error`` was raised because data was nested too deeply. False: because a
    function calls itself endlessly."""
    if not str(error).startswith(_WORDS):
        return False
    frames = [*_frames(error.__traceback__)]
    calls = Counter(frame.f_code for frame in frames)
    repeated = {c: n for c, n in calls.items() if n >= _REPEATED and not _is_of_a_library(c)}
    if not repeated:
        return True
    least = max(repeated.values()) // _SAME_LEVEL
    return any(
        _is_as_deep([*frame.f_locals.values()], least)
        for code in repeated
        for frame in islice((f for f in frames if f.f_code is code), 2)
    )


def _frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _is_of_a_library(code: CodeType) -> bool:
    file = code.co_filename
    if file.startswith(_OURS):
        return False
    return file.startswith(("<frozen", *_libraries()))


@cache
def _libraries() -> set[str]:
    import sysconfig

    return {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}


def _is_as_deep(values: list[Any], levels: int) -> bool:
    """Returns whether values are nested in each other on at least ``levels`` levels."""
    seen: set[int] = set()
    kept: list[Any] = []  # an id belongs to one value only during its lifetime
    while values and levels > 0 and len(seen) < _MOST_VALUES:
        inside: list[Any] = []
        for value in values:
            if isinstance(value, _ATOMS) or id(value) in seen:
                continue
            seen.add(id(value))
            kept.append(value)
            inside += _inside(value)
        values, levels = inside, levels - 1
    return bool(values) and levels <= 0


def _inside(value: Any) -> list[Any]:
    """Returns the values in a container, an object or an Arrow type."""
    if isinstance(value, dict):
        return [*cast(dict[Any, Any], value).values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*cast(list[Any], value)]
    if type(value).__module__.startswith("pyarrow"):
        return [*_inside_arrow(value)]
    names = {name for of in type(value).__mro__ for name in getattr(of, "__slots__", ())}
    return [getattr(value, name, None) for name in (*names, *getattr(value, "__dict__", ()))]


def _inside_arrow(value: Any) -> Iterator[Any]:
    """Yields the type of a field, an array or a scalar; the fields of a type or a schema."""
    if (of := getattr(value, "type", None)) is not None:
        yield of
    count = getattr(value, "num_fields", None)
    for index in range(count if isinstance(count, int) else len(getattr(value, "names", ()))):
        yield value.field(index)

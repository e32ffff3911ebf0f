"""Data that is nested too deeply, and a function that calls itself without an end: each is one
``RecursionError``, and only the second is a fault of ours."""

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.codec.columns import data_type
from penstock.codec.exact_json import may_be_rounded, with_floats
from penstock.deep_data import is_nested_too_deeply
from penstock.errors import not_ours
from penstock.model.type_words import type_text
from penstock.model.types import DataType, Field, Kind
from penstock.protocols.json_schema.schema_repair import repaired
from penstock.protocols.stdio.wire_struct import to_data
from penstock.runtimes.masking import Masker

LEVELS = 5_000
TEXT = '{"a":' * LEVELS + "1" + "}" * LEVELS


def deep(levels: int = LEVELS) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def deep_lists() -> Any:
    value: Any = 1
    for _ in range(LEVELS):
        value = [value]
    return value


def deep_schema() -> Any:
    schema: Any = {"type": "string"}
    for _ in range(LEVELS):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def deep_type() -> DataType:
    kind = DataType(Kind.string)
    for _ in range(LEVELS):
        kind = DataType(Kind.struct, fields=(Field("a", "a", kind),))
    return kind


def deep_arrow() -> pa.DataType:
    kind = pa.string()
    for _ in range(LEVELS):
        kind = pa.struct([("a", kind)])
    return kind


def raised(work: Callable[[], object]) -> RecursionError:
    with pytest.raises(RecursionError) as caught:
        work()
    return caught.value


@pytest.mark.parametrize(
    "work",
    [
        lambda: msgspec.json.decode(TEXT),
        lambda: json.loads(TEXT),
        lambda: msgspec.json.encode(deep()),
        lambda: json.dumps(deep()),
        lambda: copy.deepcopy(deep()),
        lambda: repr(deep_lists()),
        lambda: with_floats(deep()),
        lambda: with_floats(deep_lists()),
        lambda: may_be_rounded(deep()),
        lambda: to_data(deep_lists()),
        lambda: repaired(deep_schema()),
        lambda: Masker(["secret"]).mask_data(deep()),
        lambda: type_text(deep_type()),
        lambda: data_type(deep_arrow()),
    ],
)  # fmt: skip
def test_a_walk_of_data_that_is_nested_too_deeply_is_no_defect(work: Callable[[], object]) -> None:
    error = not_ours(raised(work))
    assert error is not None and (error.code, error.exit_code) == ("schema.too_deep", 3)


class Circle:
    """Calls itself by an attribute, by a comparison, in a comprehension and in a generator."""

    def __init__(self) -> None:
        self.other, self.columns = self, [{"name": str(n)} for n in range(1000)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self, name + "x")

    def __eq__(self, other: object) -> bool:
        return self.other == other

    def listed(self) -> list[Any]:
        return [x for _ in self.columns for x in self.listed()]

    def yielded(self) -> Any:
        yield from self.yielded()


def once(of: Any) -> Any:
    return twice(of)


def twice(of: Any) -> Any:
    return once({"again": of["again"], "more": [of["again"]]})


@pytest.mark.parametrize(
    "work",
    [
        lambda: once({"again": deep(15)}),
        lambda: Circle().missing,
        lambda: Circle() == 1,
        lambda: Circle().listed(),
        lambda: [*Circle().yielded()],
    ],
)
def test_a_function_that_calls_itself_without_an_end_is_a_defect(
    work: Callable[[], object],
) -> None:
    assert not_ours(raised(work)) is None


def test_an_error_that_a_program_raised_is_a_defect() -> None:
    assert not is_nested_too_deeply(RecursionError())
    assert not is_nested_too_deeply(RecursionError("round in a circle"))

"""What a form changed, over values that changed meanwhile."""

from typing import Any

import pytest

from penstock.web.merged_values import ABSENT, merged

BASE: dict[str, Any] = {"a": 1, "b": {"c": 1, "d": [1]}, "e": "x"}


@pytest.mark.parametrize(
    ("mine", "theirs", "made"),
    [
        (BASE, {"a": 2}, {"a": 2}),
        ({**BASE, "a": 3}, {**BASE, "e": "y"}, {**BASE, "a": 3, "e": "y"}),
        ({**BASE, "b": {"c": 2, "d": [1]}}, {**BASE, "b": {"c": 1, "d": [2]}},
         {**BASE, "b": {"c": 2, "d": [2]}}),
        ({"b": BASE["b"], "e": "x"}, {**BASE, "a": 5}, {"b": BASE["b"], "e": "x"}),  # removed
        ({**BASE, "n": 1}, {"a": 1}, {"a": 1, "n": 1}),
        ({**BASE, "a": "1"}, {**BASE, "a": 9}, {**BASE, "a": "1"}),  # another type is a change
        ({**BASE, "b": {"c": 7, "d": [1]}}, {"a": 1, "b": 5}, {"a": 1, "b": {"c": 7, "d": [1]}}),
    ],
)  # fmt: skip
def test_only_what_the_form_changed_is_changed(mine: Any, theirs: Any, made: Any) -> None:
    assert merged(BASE, mine, theirs) == made


def test_a_value_that_comes_or_goes() -> None:
    assert merged(ABSENT, {"a": 1}, ABSENT) == {"a": 1}
    assert merged({"a": 1}, ABSENT, {"a": 1}) is ABSENT
    assert merged({"a": 1}, {"a": 1}, ABSENT) is ABSENT

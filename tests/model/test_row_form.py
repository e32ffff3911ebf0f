"""In which form a destination was sent a model's rows (issue 35, B1; L8)."""

import pytest

from penstock.model.staged_rows import RowForm, form_of

ALL = dict[str, str]()


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [
        (ALL, ALL, False),
        ({"a": "x"}, {"a": "x"}, False),
        ({"a": "x"}, {"a": "x", "b": "y"}, True),  # a field that it did not have
        ({"a": "x"}, {"a": "y"}, True),  # other values in a field
        ({"a": "x", "b": "y"}, {"b": "y"}, False),  # a field less
        ({"a": "x"}, ALL, True),  # all columns
        (ALL, {"x": "x"}, False),
        (ALL, {"a": "x"}, True),
    ],
)
def test_L8_a_mapping_has_more_than_another(
    before: dict[str, str], now: dict[str, str], more: bool
) -> None:
    assert RowForm("one", now).has_more_than(RowForm("one", before)) is more
    assert RowForm("other", now).has_more_than(RowForm("one", before))


def test_a_state_of_an_earlier_version_has_no_form() -> None:
    assert form_of('{"stream":"s","key":["id"],"sets":[]}') is None
    assert form_of('{"stream":"s","cursor_field":"u","cursor":"1"}') is None
    state = '{"stream":"s","key":["id"],"sets":[],"form":{"to":"one","mapping":{"a":"x"}}}'
    assert form_of(state) == RowForm("one", {"a": "x"})

"""Which of two cursors is later: by number and by instant; of other texts it is not known."""

from decimal import Decimal

import pytest

from penstock.engine.inspect.cursor_order import is_later

AHEAD = [
    ("2024-01-03T00:00:00Z", "2024-01-03T00:00:00.0000000001Z"),
    ("2024-01-03T00:00:00.5", "2024-01-03T00:00:00.51"),
    ("2024-01-03T01:00:00+02:00", "2024-01-02T23:00:01Z"),
    ("2024-01-03T00:00:00Z", "2024-01-03T01:00:00-05:00"),
    ("2024-01-03T00:00:00Z", "2034-01-03 00:00:00"),  # no zone reaches that far
    ("2024-01-03", "2024-01-04"),
    ("20240103", "20340103"),
    ("1704240000", "17042400000"),
    ("1704240000.000100", "1704240000.000200"),
    (9, 10),
    (1704240000, Decimal("1704240000.5")),
]
BEHIND = [
    ("2024-01-03T00:00:00Z", "2024-01-03T00:00:00.0Z"),
    ("2024-01-03T01:00:00+02:00", "2024-01-02T23:00:00Z"),
    ("2024-01-03T00:00:00Z", "2024-01-03T01:00:00+05:00"),
    ("2024-01-03T00:00:00Z", "2023-01-03 00:00:00"),
    ("20240103", "20230103"),
    (10, 9),
    (10, Decimal("10.0")),
]
UNKNOWN = [
    ("abc", "abd"),
    ("9", "10"),  # as numbers later, as texts before
    ("03/01/2024", "02/01/2034"),
    ("2024-01-03T00:00:00Z", "2024-01-03T05:00:00"),  # of which zone?
    ("2024-01-03T00:00:00Z", "2024-01-03T25:00:00Z"),
    ("2024-01-03T00:00:00Z", "9999-12-31T23:59:59-14:00"),  # beyond the calendar
    ("1", "9" * 5000 + "x"),
]


@pytest.mark.parametrize(("old", "new"), AHEAD)
def test_a_later_one(old: object, new: object) -> None:
    assert is_later(new, old) is True
    assert is_later(old, new) is False


@pytest.mark.parametrize(("old", "new"), BEHIND)
def test_an_earlier_one_or_the_same(old: object, new: object) -> None:
    assert is_later(new, old) is False


@pytest.mark.parametrize(("old", "new"), UNKNOWN)
def test_an_order_that_is_not_known(old: object, new: object) -> None:
    assert is_later(new, old) is None
    assert is_later(old, new) is None


def test_numbers_of_many_digits() -> None:
    assert is_later("9" * 5000, "8" * 5000) is True
    assert is_later(12345678901234567891, 12345678901234567890) is True

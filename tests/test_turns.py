"""Every test that takes turns is played within its days, and those of one place together."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import turns


class Item:
    def __init__(self, file: str, *days: int, spark: bool = False, **at: int) -> None:
        self.path = Path(file)
        self._marks = {"turns": pytest.mark.turns(*days, **at).mark} if days else {}
        if spark:
            self._marks["spark"] = pytest.mark.spark.mark

    def get_closest_marker(self, name: str) -> Any:
        return self._marks.get(name)


def played(items: list[Any], day: object, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    left: list[Any] = []
    config: Any = SimpleNamespace(
        hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items))
    )
    monkeypatch.setenv(turns.DAY, str(day))
    kept = [*items]
    turns.leave_to_other_days(config, kept)
    assert {*kept} | {*left} == {*items} and not {*kept} & {*left}
    return kept


@pytest.mark.parametrize("days", [2, 3, 4, 6])
def test_each_is_played_once_in_its_days_and_neighbours_on_different_ones(
    days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [Item(file, days) for file in ("a", "b") for _ in range(3 * days)]
    found = [played(items, 1000 + day, monkeypatch) for day in range(days)]
    assert all(sum(item in of_day for of_day in found) == 1 for item in items)
    for begin in range(0, len(items), days):
        assert all(sum(i in of_day for i in items[begin : begin + days]) == 1 for of_day in found)


def test_of_two_formats_not_the_same_one_is_played_of_each_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [Item("a", 2) for _ in range(8)]
    assert {items.index(i) % 2 for i in played(items, 7, monkeypatch)} == {0, 1}


@pytest.mark.parametrize("days", [2, 3, 4])
def test_files_begin_on_different_days(days: int, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item(f"test_{n}.py", days) for n in range(60)]
    found = [len(played(items, day, monkeypatch)) for day in range(days)]
    assert sum(found) == 60 and max(found) < 60 / days * 1.5


def test_those_of_one_place_are_played_together(monkeypatch: pytest.MonkeyPatch) -> None:
    items = [Item("a", 4, at=2) for _ in range(3)]
    found = [len(played(items, day, monkeypatch)) for day in range(4)]
    assert found == [0, 0, 3, 0]


def test_one_with_spark_is_played_every_fifth_day_unless_a_mark_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [Item("a", spark=True) for _ in range(10)]
    daily, other = Item("a", 1, spark=True), Item("a", 2, spark=True)
    found = [played([*items, daily, other], day, monkeypatch) for day in range(10)]
    assert all(sum(item in of_day for of_day in found) == 2 for item in items)
    assert all(sum(i in of_day for i in items[:5]) == 1 for of_day in found)
    assert sum(daily in of_day for of_day in found) == 10
    assert sum(other in of_day for of_day in found) == 5


def test_others_are_played_each_day_and_all_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [Item("a"), Item("a", 2), Item("a", 2, at=0), Item("a")]
    assert all({items[0], items[3]} <= {*played(items, day, monkeypatch)} for day in range(4))
    assert played(items, "all", monkeypatch) == items


def test_what_is_asked_for_is_played_whole() -> None:
    """A path, ``-k`` or ``-m`` asks; a run of everything does not."""
    source = pytest.Config.ArgsSource

    def day(args_source: Any, keyword: str = "", markexpr: str = "") -> str:
        config: Any = SimpleNamespace(
            args_source=args_source, option=SimpleNamespace(keyword=keyword, markexpr=markexpr)
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv(turns.DAY, raising=False)
            turns.choose(config)
            return os.environ.pop(turns.DAY)

    assert day(source.ARGS) == day(source.TESTPATHS, keyword="kill") == "all"
    assert day(source.TESTPATHS, markexpr="not spark") == "all"
    assert day(source.TESTPATHS).isdigit()

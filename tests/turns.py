"""Says what is played on which day, of tests that take turns and of the simulations of crashes.

A test that uses Spark (``spark``) is played every fifth day, all others each day, unless a mark
says otherwise: ``turns(n)`` every n-th day (kills, pages of the documents, tens of thousands of
streams or keys, what takes long to build or fetch, dear tests that repeat in another combination
what another one shows), ``turns(1)`` each day (with Spark: the main job, and of each kind of
source and destination at least one test). Neighbours in a file, as the values of one
parameter are, are played on different days, and files begin on different ones, so that no day has
most of them; but those marked ``turns(n, at=k)``, which share something dear, are played together,
on the days whose remainder by ``n`` is ``k``.
``PENSTOCK_TEST_DAY`` is the day, an ordinal of Python's ``datetime``, or ``all``: then every test
is played, and so it is where tests are asked for (a path, ``::``, ``-k`` or ``-m``). Neighbours:
``conftest``, ``engine/schedules``.
"""

import os
import zlib
from collections import Counter
from datetime import UTC, datetime

import pytest

DAY = "PENSTOCK_TEST_DAY"
_EVERY = "all"
SPARK_DAYS = 5


def choose(config: pytest.Config) -> None:
    """Sets the day in the environment, so that all processes of the tests have the same one, also
    over midnight."""
    option = config.option
    asked = config.args_source is pytest.Config.ArgsSource.ARGS or option.keyword or option.markexpr
    os.environ.setdefault(DAY, _EVERY if asked else str(_now()))


def today() -> int:
    """The day whose turn it is; the real one where tests of all days are played."""
    day = os.environ[DAY]
    return _now() if day == _EVERY else int(day)


def leave_to_other_days(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out of ``items`` what is not this day's."""
    if os.environ[DAY] == _EVERY:
        return
    seen: Counter[object] = Counter()
    left: set[pytest.Item] = set()
    for item in items:
        days, place = _turns(item)
        if place is None:
            index = seen[item.path, days]
            place = index + index // days  # of two formats of a table, not always the same one
            place += zlib.crc32(item.path.name.encode())
            seen[item.path, days] += 1
        if (today() - place) % days:
            left.add(item)
    if left:
        config.hook.pytest_deselected(items=[*left])
        items[:] = [item for item in items if item not in left]


def _turns(item: pytest.Item) -> tuple[int, int | None]:
    """Every how many days the item is played, and on which of them; None: as its place in the file
    says."""
    marker = item.get_closest_marker("turns")
    if marker is not None:
        (days,) = marker.args
        return days, marker.kwargs.get("at")
    return (1 if item.get_closest_marker("spark") is None else SPARK_DAYS), None


def _now() -> int:
    return datetime.now(UTC).toordinal()

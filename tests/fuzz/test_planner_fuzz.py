"""Random connectors through random modes, runs and homes: no row is lost in silence (L1, L3, L6,
L8), and what works is not refused. ``planner_fuzz.py`` plays as many as wanted; CI plays these."""

from contextlib import ExitStack
from typing import Any

import pytest
from fuzz_model import Wrong, case_of, play
from fuzz_takeouts import TAKEN_OUT
from fuzz_values import WrongValue, play_values, value_case
from value_takeouts import BY_SPARK_TAKEN_OUT, VALUES_TAKEN_OUT, TakenOut

pytestmark = pytest.mark.slow

CASES = 400
MOST = 4000  # cases from its first on in which a fault that is there must show
VALUE_CASES, MOST_VALUE_CASES = 60, 200  # of values, which are decoded and merged for real
SPARK_CASES = 2  # of those, with merges by Spark


@pytest.mark.parametrize("block", range(4))
def test_L6_no_case_loses_a_row(block: int) -> None:
    each = CASES // 4
    for seed in range(block * each, (block + 1) * each):
        play(case_of(seed))


@pytest.mark.parametrize("seed", [2375])
def test_L6_cases_that_once_lost_rows(seed: int) -> None:
    """2375: a state that was only sealed spoke for a stream that is read from the start."""
    play(case_of(seed))


@pytest.mark.parametrize("fault", sorted(TAKEN_OUT))
def test_a_fix_that_is_taken_out_is_found(fault: str) -> None:
    take_out, rules, first = TAKEN_OUT[fault]
    with ExitStack() as stack:
        take_out(stack)
        for seed in range(first, first + MOST):
            try:
                play(case_of(seed))
            except Wrong as found:
                if found.rule in rules:
                    return
    pytest.fail(f"{MOST} cases did not show {fault}")


def test_L8_L9_no_case_of_values_loses_or_doubles_a_row() -> None:
    """Issue 38: cursors of every form, keys, marks, and declarations that change."""
    cases = [*map(value_case, range(VALUE_CASES))]
    places = [play_values(case) for case in cases]
    assert {*places} == {"parquet", "delta", "memory"}
    # Most in a real format without Spark: else they would show nothing of its merge.
    wanted = [(case.format, place) for case, place in zip(cases, places, strict=True)
              if case.format != "memory"]  # fmt: skip
    assert sum(format == place for format, place in wanted) > 0.7 * len(wanted)


@pytest.mark.spark
def test_L8_L9_no_case_of_values_loses_or_doubles_a_row_where_spark_merges(
    shared_spark: Any,
) -> None:
    for seed in range(SPARK_CASES):
        case = value_case(seed, on_disk=True)
        assert play_values(case, shared_spark) == case.format


@pytest.mark.parametrize("fault", VALUES_TAKEN_OUT)
def test_a_fix_of_values_that_is_taken_out_is_found(fault: str) -> None:
    assert _found(VALUES_TAKEN_OUT[fault]), f"{MOST_VALUE_CASES} cases did not show {fault}"


@pytest.mark.spark
@pytest.mark.parametrize("fault", BY_SPARK_TAKEN_OUT)
def test_a_fix_of_spark_s_merge_that_is_taken_out_is_found(fault: str, shared_spark: Any) -> None:
    assert _found(BY_SPARK_TAKEN_OUT[fault], shared_spark), f"no case showed {fault}"


def _found(taken: TakenOut, spark: Any = None) -> bool:
    """Whether a case shows that the fix is taken out."""
    with ExitStack() as stack:
        taken.take_out(stack)
        for seed in range(taken.first, taken.first + MOST_VALUE_CASES):
            case = value_case(seed, on_disk=spark is not None)
            if taken.key not in (None, case.columns["id"].kind):
                continue
            try:
                play_values(case, spark)
            except WrongValue as found:
                if found.rule in taken.rules:
                    return True
    return False

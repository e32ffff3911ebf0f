"""Random connectors through random modes, runs and homes: no row is lost in silence (L1, L3, L6,
L8), and what works is not refused. ``planner_fuzz.py`` plays as many as wanted; CI plays these."""

from contextlib import ExitStack

import pytest
from fuzz_model import Wrong, case_of, play
from fuzz_takeouts import TAKEN_OUT

pytestmark = pytest.mark.slow

CASES = 600
MOST = 4000  # cases from its first on in which a fault that is there must show


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

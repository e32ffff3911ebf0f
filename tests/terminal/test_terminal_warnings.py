"""A connector's warning is shown once a run, whichever of its processes repeats it (issue 40 part
3)."""

import io

import pytest

from penstock.terminal.output import Output
from penstock.terminal.progress import LineObserver

WORDS = "this API is deprecated"


@pytest.mark.parametrize(("verbosity", "times"), [(0, 1), (1, 1), (2, 3)])
def test_a_warning_is_shown_once(
    verbosity: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    lines = LineObserver(Output(verbosity=verbosity))
    for _ in range(3):  # spec, discover, read
        lines.log("WARN", "source", WORDS)
        lines.log("ERROR", "source", "it failed")
    lines.log("WARN", "destination", WORDS)
    assert err.getvalue().count(f"source: {WORDS}") == times
    assert err.getvalue().count("it failed") == 3
    assert err.getvalue().count(f"destination: {WORDS}") == 1

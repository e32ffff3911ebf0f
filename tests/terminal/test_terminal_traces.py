"""A connector's traceback is shown from -vv on only (docs/cli.md, errors)."""

import io

import pytest

from penstock.terminal.error_view import DescribedError
from penstock.terminal.output import Output
from penstock.terminal.progress import LineObserver
from penstock.terminal.traces import without_trace

PYTHON = """Traceback (most recent call last):
  File "/x/tap.py", line 3, in <module>
    main()
    ~~~~^^
KeyError: 'token'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/tap.py", line 9, in <module>
    raise ValueError("no")
ValueError: no
and why"""
JAVA = (
    "java.lang.X: no\n\tat a.b.C.d(E.java:12)\n\tat a.b.C$1.<init>(E.java)\n"
    "\t... 12 more\nCaused by: Y"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PYTHON, "KeyError: 'token'\n\nValueError: no\nand why"),
        (
            f"it ended; its last output: {PYTHON}",
            "it ended; its last output: KeyError: 'token'\n\nValueError: no\nand why",
        ),
        (JAVA, "java.lang.X: no\nCaused by: Y"),
        ("a list:\n  - one\n  - two", "a list:\n  - one\n  - two"),
        ("one line at a.b(c)", "one line at a.b(c)"),
    ],
)
def test_what_a_traceback_leads_to_is_shown_in_its_place(text: str, shown: str) -> None:
    assert without_trace(text) == shown


def said(verbosity: int, *lines: str) -> str:
    err = io.StringIO()
    output = Output(out=io.StringIO(), err=err, environ={}, verbosity=verbosity)
    observer = LineObserver(output)
    for line in lines:
        observer.log("ERROR", "source", line)
    return err.getvalue()


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_lines_of_a_connector_are_shown_without_it(verbosity: int) -> None:
    for told in ([PYTHON], PYTHON.split("\n")):
        shown = said(verbosity, *told, "after it")
        assert ("File" in shown) == ("Traceback" in shown) == (verbosity == 2)
        assert "KeyError: 'token'" in shown and "ValueError: no" in shown and "after it" in shown


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_an_error_is_shown_without_it(verbosity: int) -> None:
    connector = {"message": "m", "internal_message": PYTHON, "stack_trace": JAVA}
    error = {"message": f"the source failed: {PYTHON}", "connector": connector}
    lines = DescribedError(error, 4).lines(verbosity, None, str)
    text = "\n".join(str(line) for line in lines)
    assert ("Traceback" in text) == ("stack_trace" in text) == (verbosity == 2)
    assert "the source failed: " in text and "ValueError: no" in text

"""Words DataFusion's errors for users.

A planning error consists of the query and column names, and is quoted. A runtime error may hold
values of the batch, so only its kind is reported. Neighbour: ``sql`` raises the errors."""

import re
from typing import NamedTuple

_ONE_QUERY = "a transform is one SELECT over input"
_FILES = "a query reads the table input only: no files, no other tables, no information_schema"
_MISSING = r"table '(?:datafusion\.public\.|datafusion\.)?(.*)' not found"

_REFUSED: tuple[tuple[str, str], ...] = (
    (r"DDL not supported: (\w+)", f"a statement that makes or drops something (\\1); {_ONE_QUERY}"),
    (r"DML not supported: ([\w ]+)", f"a statement that writes (\\1); {_ONE_QUERY}"),
    (r"Statement not supported: (\w+)", f"a statement that is not a query (\\1); {_ONE_QUERY}"),
    (r"Unsupported SQL statement: (\w+)", f"a statement that is not a query (\\1); {_ONE_QUERY}"),
    (
        r"^.*\b(SHOW) .* is not supported unless",
        f"a statement that is not a query (\\1); {_ONE_QUERY}",
    ),
    (r"only supports a single SQL statement", f"several statements; {_ONE_QUERY}"),
    (r"No SQL statements were provided", f"no statement at all; {_ONE_QUERY}"),
    (_MISSING, f"the table '\\1'; {_FILES}"),
    (r"table function '(.*)' not found", f"the table function '\\1'; {_FILES}"),
)


class Failure(NamedTuple):
    """What went wrong, and what the user can do about it."""

    what: str
    advice: str


_CAST = Failure(
    "a value does not fit the type it is turned into",
    "TRY_CAST gives NULL for such a value; WHERE can leave its row out",
)
_RUNNING: tuple[tuple[str, Failure], ...] = (
    (r"[Dd]ivide by zero", Failure("a division by zero", "divide by NULLIF(x, 0)")),
    (r"Cast error|Parser error|[Cc]an(?:'t|not) (?:be )?cast|Error parsing", _CAST),
    (
        r"[Oo]verflow|out of bounds",
        Failure("a result is too large for its type", "CAST to a wider type, as DECIMAL(38, 0)"),
    ),
    (
        r"regex parse error|[Rr]egular expression",
        Failure("a regular expression that cannot be read", "mend the pattern"),
    ),
    (
        r"subquery returned more than one row",
        Failure("a scalar subquery gave several rows", "aggregate in it, or add LIMIT 1"),
    ),
)
_TARGET = re.compile(r"\bto (?:value of|type) ([A-Za-z]\w*(?:\([\w, ]*\))?)(?: type)?$")


def refusal_reason(error: BaseException) -> str | None:
    """Returns why a statement is refused, by what it would do or read. None: it is not refused but
    invalid, and DataFusion's message explains why."""
    text = _plain(error)
    for pattern, words in _REFUSED:
        found = re.search(pattern, text, re.DOTALL)
        if found is not None:
            return found.expand(words)
    return None


def is_missing_table(error: BaseException, table: str) -> bool:
    """Returns whether a planning error reports that ``table`` does not exist."""
    found = re.search(_MISSING, _plain(error), re.DOTALL)
    return found is not None and found[1] == table


def planning_failure(error: BaseException) -> str:
    """Returns the sentence for a query that cannot be planned: refused, or DataFusion's own
    message."""
    reason = refusal_reason(error)
    return _datafusion_message(error) if reason is None else f"refused: {reason}"


def _datafusion_message(error: BaseException) -> str:
    """DataFusion's message for a query that it cannot plan, without its wrapping."""
    text = _plain(error)
    parsed = re.fullmatch(r'SQL error: ParserError\("(.*)"\)', text, re.DOTALL)
    return f"SQL error: {parsed[1]}" if parsed else text


def out_of_memory(error: BaseException) -> bool:
    """Returns whether DataFusion ran out of its memory pool."""
    return "Resources exhausted" in _plain(error)


def runtime_failure(error: BaseException) -> Failure:
    """Returns what went wrong on a batch, without any value of the batch (L10)."""
    text = _plain(error)
    for pattern, failure in _RUNNING:
        if re.search(pattern, text):
            target = _TARGET.search(text)
            if failure is _CAST and target is not None:
                return failure._replace(what=f"a value does not fit the type {target[1]}")
            return failure
    kind = re.match(r"((?:[A-Z][a-z]+ )?[A-Z][a-z]+ error): ", text)
    return Failure(
        f"{kind[1]} of DataFusion" if kind else "DataFusion could not compute it",
        "try the query on part of the data: leave out one column at a time",
    )


def _plain(error: BaseException) -> str:
    text = str(error).strip().removeprefix("DataFusion error: ")
    return text.removeprefix("Error during planning: ")

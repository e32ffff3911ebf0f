"""Decides whether a query that uses ``:cursor`` begins after the saved cursor, so that none of its
rows comes a second time.

Proves it for the documented form, and for no other: one SELECT of one table, with ``WHERE :cursor
IS NULL OR COLUMN > :cursor`` as its condition, or with more conditions behind AND. With ``>=`` the
rows at the saved cursor come again. Pure; the query may be Spark's or Postgres's. Neighbours:
``spark_tokens`` cuts a query; ``engine.plan.repeats`` labels the run."""

from collections.abc import Sequence

from penstock.spark.model import CURSOR
from penstock.transforms.spark_tokens import Token, TokenKind, tokenize

_PARAMETER = [":", CURSOR.upper()]
_CONDITION = [*_PARAMETER, "IS", "NULL", "OR"]
_ENDS = ("AND", "GROUP", "HAVING", "ORDER", "SORT", "LIMIT")
_SEVERAL_TABLES = {"JOIN", "LATERAL", ","}
_BEFORE_A_COLUMN = ("SELECT", "DISTINCT", "BY", "OR", ",")


def begins_after(query: str, column: str) -> bool:
    """Returns whether ``column`` is above the saved cursor in every row of the query; False: not
    proved."""
    if "\\" in query:  # Spark and Postgres read it differently
        return False
    names = [_name(token) for token in tokenize(query)[0]]
    if any(names.count(word) != 1 for word in ("SELECT", "FROM", "WHERE")):
        return False
    where = names.index("WHERE")
    if _SEVERAL_TABLES & {*names[names.index("FROM") : where]}:
        return False
    bracketed = names[where + 1 : where + 2] == ["("]
    begin = where + 1 + bracketed
    wanted = len(_CONDITION) + begin
    if names[begin:wanted] != _CONDITION:
        return False
    while names[wanted + 1 : wanted + 2] == ["."]:
        wanted += 2
    compared, *rest = [*names[wanted:], ""]
    closing = [")"] if bracketed else []
    expected = [">", *_PARAMETER, *closing]
    after = rest[len(expected) : -1]
    strictly = rest[: len(expected)] == expected and (not after or after[0] in _ENDS)
    return (
        strictly
        and "OR" not in after
        and compared == column.upper()
        and _is_one_column(names, compared)
    )


def _name(token: Token) -> str:
    """Returns the token as Spark compares it; a text keeps its quotes, so that it is not a name."""
    return f"'{token.text}'" if token.kind is TokenKind.text else token.name


def _is_one_column(names: Sequence[str], column: str) -> bool:
    """Returns whether the name means the same column everywhere, and no other expression has it
    (``u AS at``, ``nested.at``)."""
    qualifiers: set[tuple[str, ...]] = set()
    for index in (i for i, name in enumerate(names) if name == column):
        begin = index
        while begin > 1 and names[begin - 1] == ".":
            begin -= 2
        if begin == 0 or names[begin - 1] not in _BEFORE_A_COLUMN:
            return False
        qualifiers.add(tuple(names[begin:index]))
    return len(qualifiers) == 1

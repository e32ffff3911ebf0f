"""Reads and checks the queries of ``spark-sql``, which Spark runs over a whole stream at its load.

Finds faults of the pipeline file without a JVM, and refuses queries that would run programs or the
JVM's own methods: Spark evaluates such calls while it plans, before it shows a plan. Not here:
whether a query fits a stream (``spark.query``, once Spark runs). A query is no batch transform:
lanes never see it. Neighbours: ``engine.deliver.stream_queries`` passes queries to Spark, before
the source is read and at each load; ``spark_tokens`` cuts a query as Spark's lexer does.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from penstock.errors import ConfigError
from penstock.spark.query import Query
from penstock.transforms.config_errors import read_query, transform_error
from penstock.transforms.open import SPARK_SQL as USE
from penstock.transforms.spark_tokens import Token, TokenKind, tokenize

SINGLE_LOAD_REASON = (
    f"{USE} works on the whole stream: it loads at the end of the sync, and its columns are known "
    "when Spark has read the query"
)
_QUERY_CODE = "transform.query"
_ADVICE = "config takes query: a SELECT over the table input"
BEGINS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_INPUT = "INPUT"
_JVM = ("REFLECT", "JAVA_METHOD", "TRY_REFLECT")


class TransformSection(Protocol):
    """What :func:`queries` reads of an entry of ``transforms``."""

    @property
    def use(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


def queries(transforms: Sequence[TransformSection]) -> tuple[Query, ...]:
    """Reads the pipeline's ``spark-sql`` queries, in their order. Raises ``ConfigError`` with every
    fault: of a config (``config.transform``), of a query (``transform.query``), and for a batch
    transform that comes after a query."""
    found: list[Query] = []
    faults: list[ConfigError] = []
    for index, section in enumerate(transforms):
        where = f"transforms[{index}]"
        try:
            if section.use == USE:
                found.append(_query(section.config, where))
            elif found or faults:
                raise transform_error(
                    [f"{where}.use: {section.use} comes after a {USE}"],
                    section.use,
                    where,
                    advice=f"{USE} works on whole streams, after everything that works on batches: "
                    "write it last",
                )
        except ConfigError as e:
            faults.append(e)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        problems = [p for e in faults for p in e.problems]
        raise transform_error(problems, USE, "transforms", advice=_ADVICE)
    return tuple(found)


def _query(config: Mapping[str, Any], where: str) -> Query:
    path = f"{where}.config.query"
    query = read_query(config, USE, where, _ADVICE).strip()
    tokens, problem = tokenize(query)
    if tokens and tokens[-1].text == ";":
        tokens.pop()
    problem = problem or _problem(tokens)
    if problem is not None:
        raise transform_error([f"{path}: {problem}"], USE, path, advice=_ADVICE, code=_QUERY_CODE)
    return Query(query[: tokens[-1].end], path)


def _problem(tokens: Sequence[Token]) -> str | None:
    """Returns why a query is refused whatever the stream, or that it does not use ``input``; None:
    it is not refused."""
    problem = refusal(tokens)
    if problem is None and not any(
        t.name == _INPUT and t.kind is not TokenKind.text for t in tokens
    ):
        return "the query does not read the table input"
    return problem


def refusal(tokens: Sequence[Token]) -> str | None:
    """Returns why these tokens are refused as a query, whatever they read: not a single query, or a
    call that leaves Spark. None: they are not."""
    first = next((t for t in tokens if t.text != "("), None)
    if first is None or first.kind is not TokenKind.word or first.name not in BEGINS:
        shown = ""
        if first is not None:
            shown = first.name if first.kind is TokenKind.word else first.text[:1]
        return f"refused: a statement that is not a query ({shown})"
    if any(t.text == ";" for t in tokens):
        return "refused: several statements; write one query"
    for token, after in pairwise(tokens):
        problem = _unsafe_call(token, after)
        if problem is not None:
            return f"refused: {problem}"
    return None


def _unsafe_call(token: Token, after: Token) -> str | None:
    """Returns why two neighbouring tokens would run a program or a method of the JVM; None: they
    would not. A text before a parenthesis counts as a name, since it is one in a session with
    double-quoted identifiers."""
    if token.name == "USING" and token.kind is TokenKind.word and after.kind is TokenKind.text:
        return "TRANSFORM, MAP and REDUCE ... USING run a program"
    if after.text == "(" and token.name in _JVM:
        return f"{token.name.lower()} calls any method of the JVM"
    if after.text == "(" and token.name == "IDENTIFIER" and token.kind is TokenKind.word:
        return "IDENTIFIER(...) hides a name; write the name itself"
    return None

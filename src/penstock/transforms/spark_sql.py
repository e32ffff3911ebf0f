"""``spark-sql``: queries over all that a run has read of a stream, by Spark, when it is loaded.

What a pipeline file can say wrong is found here, without a JVM; whether a query fits a stream only
Spark knows (``spark.query``), once it has started. So is what would run programs or the JVM's own
methods: Spark evaluates while it plans, and shows no plan before. Not a batch transform: lanes
never see it. Neighbours: ``engine.deliver.stream_queries`` asks Spark, before the source is asked
and at each load; ``spark_tokens`` reads a query as Spark's lexer does.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from penstock.errors import ConfigError
from penstock.spark.query import Query
from penstock.transforms.config_errors import faulty, query_of
from penstock.transforms.open import SPARK_SQL as USE
from penstock.transforms.spark_tokens import Kind, Token, read

HELD = (
    f"{USE} works on the whole stream: it loads at the end of the sync, and its columns are known "
    "when Spark has read the query"
)
_QUERY_CODE = "transform.query"
_ADVICE = "config takes query: a SELECT over the table input"
_BEGINS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_INPUT = "INPUT"
_JVM = ("REFLECT", "JAVA_METHOD", "TRY_REFLECT")


class Told(Protocol):
    """An entry of ``transforms``."""

    @property
    def use(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...


def queries(transforms: Sequence[Told]) -> tuple[Query, ...]:
    """The pipeline's queries, in their order. Raises ``ConfigError`` with every fault: of a config
    (``config.transform``), of a query (``transform.query``), and of a batch transform that comes
    after one of them."""
    found: list[Query] = []
    faults: list[ConfigError] = []
    for index, told in enumerate(transforms):
        where = f"transforms[{index}]"
        try:
            if told.use == USE:
                found.append(_query(told.config, where))
            elif found or faults:
                raise faulty(
                    [f"{where}.use: {told.use} comes after a {USE}"],
                    told.use,
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
        raise faulty(problems, USE, "transforms", advice=_ADVICE)
    return tuple(found)


def _query(config: Mapping[str, Any], where: str) -> Query:
    place = f"{where}.config.query"
    query = query_of(config, USE, where, _ADVICE).strip()
    found, problem = read(query)
    if found and found[-1].text == ";":
        found.pop()
    problem = problem or _problem(found)
    if problem is not None:
        raise faulty([f"{place}: {problem}"], USE, place, advice=_ADVICE, code=_QUERY_CODE)
    return Query(query[: found[-1].end], place)


def _problem(found: Sequence[Token]) -> str | None:
    """What is wrong with a query however it is read."""
    first = next((t for t in found if t.text != "("), None)
    if first is None or first.kind is not Kind.word or first.name not in _BEGINS:
        shown = "" if first is None else first.name if first.kind is Kind.word else first.text[:1]
        return f"refused: a statement that is no query ({shown})"
    if any(t.text == ";" for t in found):
        return "refused: several statements; a transform is one query"
    for token, after in pairwise(found):
        problem = _reaches(token, after)
        if problem is not None:
            return f"refused: {problem}"
    if not any(t.name == _INPUT and t.kind is not Kind.text for t in found):
        return "the query does not read the table input"
    return None


def _reaches(token: Token, after: Token) -> str | None:
    """Out of the query, into this machine. A text before a parenthesis is a name too, in a session
    that quotes names so."""
    if token.name == "USING" and token.kind is Kind.word and after.kind is Kind.text:
        return "TRANSFORM, MAP and REDUCE ... USING run a program"
    if after.text == "(" and token.name in _JVM:
        return f"{token.name.lower()} calls any method of the JVM"
    if after.text == "(" and token.name == "IDENTIFIER" and token.kind is Kind.word:
        return "IDENTIFIER(...) hides a name; write the name itself"
    return None

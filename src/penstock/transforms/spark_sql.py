"""``spark-sql``: queries over all that a run has read of a stream, by Spark, when it is loaded.

What a pipeline file can say wrong is found here, without a JVM; whether a query fits a stream only
Spark knows (``spark.query``), once it has started. Not a batch transform: lanes never see it.
Neighbours: ``engine.queries`` asks Spark, before the source is asked and at each load.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from penstock.errors import ConfigError
from penstock.spark.query import Query
from penstock.transforms.open import SPARK_SQL as USE
from penstock.transforms.settings import faulty, query_of

HELD = (
    f"{USE} works on the whole stream: it loads at the end of the sync, and its columns are known "
    "when Spark has read the query"
)
_QUERY_CODE = "transform.query"
_ADVICE = "config takes query: a SELECT over the table input"
_BEGINS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE")
_ASIDE = re.compile(
    r"""[rR]'[^']*' | [rR]"[^"]*" | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*"
    | --[^\n]* | /\*.*?\*/""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile("`(?:``|[^`])*`")
_INPUT = re.compile(r"\binput\b", re.IGNORECASE)


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
    bare = _ASIDE.sub(" ", query)
    if bare.rstrip().endswith(";"):
        query, bare = query[: query.rindex(";")], bare.rstrip()[:-1]
    problem = _problem(bare)
    if problem is not None:
        raise faulty([f"{place}: {problem}"], USE, place, advice=_ADVICE, code=_QUERY_CODE)
    return Query(query, place)


def _problem(bare: str) -> str | None:
    """What is wrong with a query however it is read; ``bare``: without texts and comments."""
    word = re.match(r"[\s(]*(\w*)", bare)
    first = word.group(1).upper() if word is not None else ""
    if first not in _BEGINS:
        return f"refused: a statement that is no query ({first or bare.strip()[:1]})"
    if ";" in _QUOTED.sub(" ", bare):
        return "refused: several statements; a transform is one query"
    if not _INPUT.search(bare):
        return "the query does not read the table input"
    return None

"""What DataFusion's logical plan says of a query: does it read ``input``, which rows and which
columns come through untouched.

Decided by the plan and never by the query's text. Where a plan has a node that is not known here,
the answer is the careful one: not read, not the same column, no row numbers. Neighbour: ``sql``
plans and runs.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from datafusion import DataFrame, SessionContext, col
from datafusion.expr import Expr, SortExpr
from datafusion.plan import LogicalPlan

INPUT = "input"
ROW = "_penstock_row"  # no column of a stream begins with _penstock_

# Nothing else shows a subquery's plan; the binding gives it no inputs.
_SCAN = re.compile(r"^ *TableScan: (\w+\.)*input$", re.MULTILINE)
_NO_QUERIES = ("Explain", "Analyze", "DescribeTable")
_SAME_COLUMNS = ("Filter", "Sort", "SubqueryAlias", "Limit")
_SAME_ROWS = ("Projection", "Filter", "Sort", "SubqueryAlias", "Limit")
_NO_LIMIT = 1 << 62


class _Column(NamedTuple):
    """A column of a node: its name, and the column of ``input`` that it is (None: not surely)."""

    name: str | None
    source: str | None


def no_query(plan: LogicalPlan) -> str | None:
    """The word of a statement that has a plan and is no query."""
    kind = _kind(plan)
    return {"DescribeTable": "DESCRIBE"}.get(kind, "EXPLAIN") if kind in _NO_QUERIES else None


def reads_input(plan: LogicalPlan) -> bool:
    """Is a table ``input`` scanned, be it in a subquery of an expression? A common table expression
    that nothing uses is not in the plan; one that is named ``input`` and calls itself is, as a
    scan: that such a query needs no table is for the planner to tell."""
    return _SCAN.search(plan.display_indent()) is not None


def untouched(plan: LogicalPlan, columns: list[str]) -> list[str | None]:
    """For each column that comes out, the column of ``input`` (of ``columns``) whose values it has
    unchanged, as far as plain projections show it; [] where they do not."""
    return [c.source for c in _columns(plan, columns) or []]


def same_rows(plan: LogicalPlan) -> bool:
    """Is each row that comes out one row of ``input``, and no other is, by projections, filters,
    sorts and limits only?"""
    node = _variant(plan)
    kind = type(node).__name__
    if kind == "TableScan":
        return _is_input(node)
    if kind == "Limit" and _limit(node) is None:
        return False
    return kind in _SAME_ROWS and same_rows(plan.inputs()[0])


def with_rows(
    plan: LogicalPlan, context: SessionContext, numbered: Callable[[], DataFrame]
) -> DataFrame:
    """The plan once more, node by node, over a table that has the column :data:`ROW` as well, which
    every projection carries along. Needs :func:`same_rows`. Expressions are the planner's own, so
    what they name (and their subqueries) is decided already. ``numbered`` gives the table, named
    ``input`` in ``context``, where aliases are registered."""
    node = _variant(plan)
    kind = type(node).__name__
    if kind == "TableScan":
        return numbered()
    below = with_rows(plan.inputs()[0], context, numbered)
    if kind == "SubqueryAlias":
        name = '"' + node.alias().replace('"', '""') + '"'
        context.deregister_table(name)
        context.register_view(name, below)
        return context.table(name)
    if kind == "Filter":
        return below.filter(Expr(node.predicate()))
    if kind == "Sort":
        keys = [
            SortExpr(Expr(k.expr()), ascending=k.ascending(), nulls_first=k.nulls_first())
            for k in node.sort_exprs()
        ]
        return below.sort(*keys)
    if kind == "Limit":
        count, offset = _limit(node) or (_NO_LIMIT, 0)
        return below.limit(count, offset)
    return below.select(*(Expr(e) for e in node.projections()), col(ROW))


def _limit(node: Any) -> tuple[int, int] | None:
    """(LIMIT, OFFSET), where they are written as numbers or not at all."""
    count, offset = node.fetch(), node.skip()
    try:
        return (
            _NO_LIMIT if count is None else Expr(count).to_variant().value_i64(),
            0 if offset is None else Expr(offset).to_variant().value_i64(),
        )
    except Exception:  # another expression has no such method; NULL, a plain Exception of its own
        return None


def _columns(plan: LogicalPlan, columns: list[str]) -> list[_Column] | None:
    node = _variant(plan)
    kind = type(node).__name__
    if kind == "TableScan":
        return [_Column(c, c) for c in columns] if _is_input(node) else None
    if kind not in (*_SAME_COLUMNS, "Projection"):
        return None
    below = _columns(plan.inputs()[0], columns)
    if below is None or kind != "Projection":
        return below
    return [_projected(Expr(e), below) for e in node.projections()]


def _projected(expression: Expr, below: list[_Column]) -> _Column:
    name: str | None = None
    node = _variant(expression)
    while type(node).__name__ == "Alias":
        name = name or node.alias()
        node = _variant(Expr(node.expr()))
    if type(node).__name__ != "Column":
        return _Column(name, None)
    found = [c for c in below if c.name == node.name()]
    return _Column(name or node.name(), found[0].source if len(found) == 1 else None)


def _is_input(scan: Any) -> bool:
    return scan.fqn()[2] == INPUT  # (catalog, schema, table)


def _kind(plan: LogicalPlan) -> str:
    return type(_variant(plan)).__name__


def _variant(node: LogicalPlan | Expr) -> Any:
    """The node as its own class; None where DataFusion has none for it in Python."""
    try:
        return node.to_variant()
    except Exception:  # a plain Exception is what its binding raises
        return None

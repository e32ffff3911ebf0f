"""Reads DataFusion's logical plan of a query: whether it scans ``input``, and which rows and
columns it passes on unchanged.

Decides by the plan, never by the query's text. For a node that is not handled here the answer is
the cautious one: not read, not the same column, no row numbers. Neighbour: ``sql`` plans and
runs."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from datafusion import DataFrame, SessionContext, col
from datafusion.expr import Expr, SortExpr
from datafusion.plan import LogicalPlan

INPUT = "input"
ROW = "_penstock_row"  # cannot clash: no column of a stream begins with _penstock_

# A subquery's plan shows only in the plan's text: the binding gives its node no inputs.
_SCAN = re.compile(r"^ *TableScan: (\w+\.)*input$", re.MULTILINE)
_NO_QUERIES = ("Explain", "Analyze", "DescribeTable")
_SAME_COLUMNS = ("Filter", "Sort", "SubqueryAlias", "Limit")
_SAME_ROWS = ("Projection", "Filter", "Sort", "SubqueryAlias", "Limit")
_NO_LIMIT = 1 << 62


class _Column(NamedTuple):
    """A column of a node: its name, and the column of ``input`` that it copies (None: unknown)."""

    name: str | None
    source: str | None


def non_query_statement(plan: LogicalPlan) -> str | None:
    """Returns the keyword of a statement that has a plan but is no query; None for a query."""
    kind = _kind(plan)
    return {"DescribeTable": "DESCRIBE"}.get(kind, "EXPLAIN") if kind in _NO_QUERIES else None


def reads_input(plan: LogicalPlan) -> bool:
    """Returns whether the plan scans a table ``input``, also in a subquery of an expression. An
    unused common table expression is not in the plan. A recursive one named ``input`` looks like a
    scan; the planner reports that such a query needs no table."""
    return _SCAN.search(plan.display_indent()) is not None


def unchanged_columns(plan: LogicalPlan, columns: list[str]) -> list[str | None]:
    """Returns, for each output column, the column of ``input`` (one of ``columns``) that it copies,
    as far as plain projections show it, else None; [] if the plan has other nodes."""
    return [c.source for c in _columns(plan, columns) or []]


def keeps_rows(plan: LogicalPlan) -> bool:
    """Returns whether each output row is one row of ``input`` and no row comes twice: the plan has
    only projections, filters, sorts and limits."""
    node = _variant(plan)
    kind = type(node).__name__
    if kind == "TableScan":
        return _is_input(node)
    if kind == "Limit" and _limit(node) is None:
        return False
    return kind in _SAME_ROWS and keeps_rows(plan.inputs()[0])


def with_row_numbers(
    plan: LogicalPlan, context: SessionContext, numbered: Callable[[], DataFrame]
) -> DataFrame:
    """Rebuilds the plan, node by node, over a table with the additional column :data:`ROW`, which
    every projection passes on. Requires :func:`keeps_rows`. The expressions are the planner's own:
    their names and subqueries are resolved already. ``numbered`` registers that table as ``input``
    in ``context`` and returns it; aliases are registered in ``context`` too."""
    node = _variant(plan)
    kind = type(node).__name__
    if kind == "TableScan":
        return numbered()
    below = with_row_numbers(plan.inputs()[0], context, numbered)
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
    """Returns (LIMIT, OFFSET) if both are numbers or absent; None if one is another expression."""
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
    matches = [c for c in below if c.name == node.name()]
    return _Column(name or node.name(), matches[0].source if len(matches) == 1 else None)


def _is_input(scan: Any) -> bool:
    return scan.fqn()[2] == INPUT  # (catalog, schema, table)


def _kind(plan: LogicalPlan) -> str:
    return type(_variant(plan)).__name__


def _variant(node: LogicalPlan | Expr) -> Any:
    """Returns the node as an instance of its own class; None if the Python binding has no such
    class."""
    try:
        return node.to_variant()
    except Exception:  # a plain Exception is what its binding raises
        return None

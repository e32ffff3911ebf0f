"""States the rule by which rows of a key become its versions, as SQL for DuckDB.

Rows are *events* in a table ``events``: the load's rows, and the table's versions of the same keys,
each of which is one event at its start and one at its end. Events are sorted, those that another
replaces are left out, and each version is cut where the next event begins. The table's versions are
the only state, so the grouping of rows into loads changes nothing.

:func:`by_cursor`: the cursor gives rows a place (``tables.newest``). A row at the same place
replaces the other; one without a comparable cursor takes the highest place that came before it, or
one below all. A delete ends the version before it; one that finds none is kept as an empty version
(``starts = ends``), so that a late row below it ends there. :func:`by_arrival`: each row is the
version after all before it; rows equal to the one before, and deletes that find no current version,
change nothing.

Columns of ``events`` in addition to the keys: ``old``: it is the table's; ``owner``, ``number``:
the file or part, and its row; ``came``: the order of arrival, in which the table's ends have -1 and
its starts 0; ``cursor``; ``gone``: a delete or an end. All others are passed through.

Not here: where events come from, which rows of files change as a result
(``files.version_rows``)."""

from collections.abc import Sequence

from penstock.tables.newest import DUCKDB, OTHER, Order


def by_cursor(keys: Sequence[str], order: Order) -> str:
    """Returns a query for the versions of ``events``: its columns, ``starts``, ``ends``, ``live``
    (it is current) and ``kept``: the event has a row in the table afterwards, an empty one if it is
    ``gone``. ``order``: that of the column ``cursor``."""
    key = ", ".join(keys)
    place = DUCKDB.pair(order.major, f"coalesce({order.minor}, '')")
    until = f"PARTITION BY {key} ORDER BY came ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    whole = until.replace("CURRENT ROW", "UNBOUNDED FOLLOWING").replace("came", "old DESC, came", 1)
    here = until.replace(key, f"{key}, place", 1)
    known = f"CASE WHEN form <> {OTHER} THEN form END"
    rows = "events"
    for name, sql in order.steps:
        rows = f"(SELECT *, {sql} AS {name} FROM {rows})"
    rows = f"(SELECT *, {order.form} AS form, {place} AS value FROM {rows})"
    rows = f"(SELECT *, first_value({known} IGNORE NULLS) OVER ({whole}) AS key_form FROM {rows})"
    rows = f"(SELECT *, CASE WHEN form = key_form THEN value END AS own FROM {rows})"
    rows = (
        "(SELECT *, CASE WHEN old OR own IS NOT NULL THEN own "
        f"ELSE max(own) OVER ({until}) END AS place FROM {rows})"
    )
    shown = "CASE WHEN own IS NOT NULL THEN cursor END"
    rows = f"(SELECT *, last_value({shown} IGNORE NULLS) OVER ({here}) AS starts FROM {rows})"
    rows = (
        f"(SELECT * FROM {rows} "
        f"QUALIFY row_number() OVER (PARTITION BY {key}, place ORDER BY came DESC) = 1)"
    )
    line = f"OVER (PARTITION BY {key} ORDER BY place NULLS FIRST)"
    rows = (
        f"(SELECT *, lead(starts) {line} AS next_starts, lead(true) {line} AS has_next, "
        f"coalesce(lag(gone) {line}, true) AS after_gap FROM {rows})"
    )
    return (
        "SELECT *, CASE WHEN gone THEN starts ELSE next_starts END AS ends, NOT gone AND has_next "
        f"IS NULL AS live, NOT gone OR after_gap AS kept FROM {rows}"
    )


def by_arrival(keys: Sequence[str]) -> str:
    """Like :func:`by_cursor`, where ``cursor`` is the time of extraction, a number, and ``events``
    have ``content``, by which rows are compared. Of the table's versions of a key it needs only the
    last one. Leaves out rows and deletes that change nothing."""
    key = ", ".join(keys)
    line = f"OVER (PARTITION BY {key} ORDER BY came)"
    rows = (
        f"(SELECT *, coalesce(lag(gone) {line}, true) AS after_gap, "
        f"coalesce(NOT lag(gone) {line} AND content IS NOT DISTINCT FROM lag(content) {line}, "
        "false) AS same FROM events)"
    )
    rows = f"(SELECT * FROM {rows} WHERE old OR NOT (CASE WHEN gone THEN after_gap ELSE same END))"
    until = f"OVER (PARTITION BY {key} ORDER BY came ROWS UNBOUNDED PRECEDING)"
    rows = f"(SELECT *, max(cursor) {until} AS starts FROM {rows})"
    return (
        f"SELECT *, CASE WHEN gone THEN starts ELSE lead(starts) {line} END AS ends, "
        f"NOT gone AND lead(true) {line} IS NULL AS live, NOT gone AS kept FROM {rows}"
    )

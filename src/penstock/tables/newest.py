"""States the one rule of which row of a key is the newest, as SQL for DuckDB and for Spark.

A cursor has a *form*, a function of what its column stores: a number (a numeric column; in text, a
plain integer), a time (a column of times; in text, ISO 8601 with date and time of day), a time
without an offset, or other (all else: other text, dates alone, NULL, numbers that are not finite).
The rows of a key are folded in the order of their arrival. Within a form that is not *other* the
higher value wins, and ties go to the later row; between two forms, and within *other*, the later
row wins. Extraction times decide nothing. A delete without a cursor has the order of the row that
the fold has at that moment.

:func:`fold` reduces the rows of a load to one row per key and one bit, whether two forms were met;
:func:`replaces` compares such a row with the table's. Both render the same expressions for both
engines (:data:`DUCKDB`, :data:`SPARK`), so that the two ways to a table cannot differ. Imports
neither engine. Not here: which files are read (``files.newest_rows``), DataFrames
(``frame.load_frame``)."""

from typing import NamedTuple

from penstock.model.types import Kind

OTHER, NUMBER, TIME, WALL_CLOCK = range(4)  # forms

TEXTS = {Kind.string, Kind.number_text, Kind.json, Kind.time, Kind.time_tz}
_NUMBERS = {Kind.integer, Kind.decimal, Kind.number}
_TIMES = {Kind.date, Kind.timestamp, Kind.timestamp_ntz}

_END = r"\z"
_INTEGER_TEXT = r"^[+-]?[0-9]+\z"
_DAY = "(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_SECONDS = "(:([0-5][0-9]|60)([.,][0-9]+)?)?"
_CLOCK = f"(([01][0-9]|2[0-3]):[0-5][0-9]{_SECONDS}|24:00(:00([.,]0+)?)?)"
_OFFSET = "([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
_TIME_TEXT = rf"^[+-]?[0-9]{{4,9}}-{_DAY}[Tt ]{_CLOCK}{_OFFSET}\z"
_BASIC = r"^[0-9]{8}[Tt][0-9]{4}"  # 20240501T1200
_YEARS = 1_000_000_000  # added to a year, so that none is negative: whole cycles of the calendar

FORM, MAJOR, MINOR = "_penstock_form", "_penstock_major", "_penstock_minor"
TURN = "_penstock_turn"  # the place of a row in the order of arrival of its key's rows
RUN = "_penstock_run"  # how often the form has changed before the row, among its key's rows
TWO = "_penstock_two_forms"  # whether the rows of its key have two forms
_OWN, _BEFORE, _VALUE = "_penstock_own_form", "_penstock_form_before", "_penstock_value"


class SqlDialect(NamedTuple):
    """What two engines write differently. ``quote``: of an identifier."""

    name: str
    divide: str
    quote: str

    def matches(self, sql: str, pattern: str) -> str:
        if self.name == "duckdb":
            return f"regexp_matches({sql}, '{pattern}')"
        return f"({sql} RLIKE r'{pattern}')"

    def found(self, sql: str, pattern: str) -> str:
        raw = "" if self.name == "duckdb" else "r"
        return f"regexp_extract({sql}, {raw}'{pattern}', 0)"

    def pair(self, one: str, other: str) -> str:
        if self.name == "duckdb":
            return f"{{'a': {one}, 'b': {other}}}"
        return f"named_struct('a', {one}, 'b', {other})"

    def newest_known(self, sql: str, over: str) -> str:
        """The last value that is not NULL."""
        if self.name == "duckdb":
            return f"last_value({sql} IGNORE NULLS) OVER ({over})"
        return f"last_value({sql}) IGNORE NULLS OVER ({over})"


DUCKDB = SqlDialect("duckdb", "//", '"')
SPARK = SqlDialect("spark", "div", "`")


class Order(NamedTuple):
    """SQL for the order of a cursor. ``steps``: columns to add, one after the other, each of which
    may use those before; then expressions: its form, and within a form ``major``, then ``minor``,
    which are NULL in form ``other``."""

    form: str
    major: str
    minor: str
    steps: tuple[tuple[str, str], ...] = ()


NO_ORDER = Order(str(OTHER), "CAST(NULL AS BIGINT)", "CAST(NULL AS STRING)")


def order_of(
    sql: str, kind: Kind, dialect: SqlDialect, *, as_text: bool = False, prefix: str = ""
) -> Order:
    """The order of the cursor ``sql``, of a column of ``kind``. ``as_text``: all text has one form,
    whose values are compared byte by byte (``cursor_order: text``). ``prefix``: of the steps'
    names, beside those of another cursor."""
    if kind in TEXTS:
        if as_text:
            form = f"CASE WHEN {sql} IS NULL THEN {OTHER} ELSE {NUMBER} END"
            return Order(form, f"CASE WHEN {sql} IS NOT NULL THEN CAST(0 AS BIGINT) END", sql)
        return _Steps(dialect, f"_penstock_{prefix}").order(sql)
    if kind is Kind.number:
        finite = f"abs({sql}) < CAST('Infinity' AS DOUBLE)"
        form = f"CASE WHEN {finite} THEN {NUMBER} ELSE {OTHER} END"
        return Order(form, f"CASE WHEN {finite} THEN {sql} + 0.0E0 END", NO_ORDER.minor)
    if kind in _NUMBERS | _TIMES:
        found = NUMBER if kind in _NUMBERS else TIME
        form = f"CASE WHEN {sql} IS NULL THEN {OTHER} ELSE {found} END"
        return Order(form, sql, NO_ORDER.minor)
    return NO_ORDER


class _Steps:
    """Collects the steps that order text."""

    def __init__(self, dialect: SqlDialect, prefix: str) -> None:
        self._dialect, self._prefix = dialect, prefix
        self._steps: list[tuple[str, str]] = []

    def _add(self, name: str, sql: str) -> str:
        name = f"{self._prefix}{name}"
        self._steps.append((name, sql))
        return name

    def order(self, sql: str) -> Order:
        """A number is ordered by the length of its digits, then by its digits; a time by its
        minute, then by its seconds, in which 60 is a leap second."""
        matches = self._dialect.matches
        # quotes: a column of JSON is text in the table, and has them around its texts
        text = self._add("text", f"trim(BOTH ' \"' FROM {sql})")
        integer = self._add("integer", f"coalesce({matches(text, _INTEGER_TEXT)}, false)")
        digits = self._add("digits", f"trim(LEADING '+-0' FROM {text})")
        minus = f"substr({text}, 1, 1) = '-'"
        length = f"CAST(length({digits}) AS BIGINT)"
        upside_down = f"translate({digits}, '0123456789', '9876543210')"
        valid, minute, seconds, offset = self._time(text)
        form = (
            f"CASE WHEN {integer} THEN {NUMBER} WHEN NOT {valid} THEN {OTHER} "
            f"WHEN {offset} IS NULL THEN {WALL_CLOCK} ELSE {TIME} END"
        )
        major = (
            f"CASE WHEN {integer} THEN CASE WHEN {minus} THEN -{length} ELSE {length} END "
            f"WHEN {valid} THEN {minute} END"
        )
        minor = (
            f"CASE WHEN {integer} THEN CASE WHEN {minus} THEN {upside_down} ELSE {digits} END "
            f"WHEN {valid} THEN {seconds} END"
        )
        return Order(form, major, minor, (*self._steps,))

    def _time(self, text: str) -> tuple[str, str, str, str]:
        """Whether ``text`` is a time; a number that grows with its minute; its seconds as text with
        all digits; its offset in minutes, NULL where it has none."""
        add, matches, div = self._add, self._dialect.matches, self._dialect.divide
        colon = f"CASE WHEN substr({text}, 14, 1) BETWEEN '0' AND '9' THEN ':' ELSE '' END"
        basic = (
            f"concat(substr({text}, 1, 4), '-', substr({text}, 5, 2), '-', substr({text}, 7, 5), "
            f"':', substr({text}, 12, 2), {colon}, substr({text}, 14))"
        )
        s = add("time", f"CASE WHEN {matches(text, _BASIC)} THEN {basic} ELSE {text} END")
        year = add("year_text", self._dialect.found(s, "^[+-]?[0-9]+"))
        rest = add("rest", f"substr({s}, length({year}) + 1)")  # -MM-DDTHH:MM and more

        def part(start: int) -> str:
            return f"try_cast(substr({rest}, {start}, 2) AS BIGINT)"

        y = add("year", f"try_cast({year} AS BIGINT) + {_YEARS}")
        m, d = add("month", part(2)), add("day", part(5))
        leap = f"{y} % 4 = 0 AND ({y} % 100 <> 0 OR {y} % 400 = 0)"
        last = (
            f"CASE WHEN {m} = 2 THEN CASE WHEN {leap} THEN 29 ELSE 28 END "
            f"WHEN {m} IN (4, 6, 9, 11) THEN 30 ELSE 31 END"
        )
        valid = add("valid", f"coalesce({matches(s, _TIME_TEXT)} AND {d} <= {last}, false)")
        tail = add("tail", f"substr({rest}, 13)")  # :SS.fff and an offset
        shift = add("shift", self._dialect.found(tail, r"[+-].*\z"))
        minutes = f"coalesce(try_cast(substr({shift}, length({shift}) - 1, 2) AS BIGINT), 0)"
        hours = f"try_cast(substr({shift}, 2, 2) AS BIGINT) * 60"
        total = f"({hours} + CASE WHEN length({shift}) > 3 THEN {minutes} ELSE 0 END)"
        offset = add(
            "offset",
            f"CASE WHEN {matches(tail, '[Zz]' + _END)} THEN 0 WHEN {shift} = '' THEN NULL "
            f"WHEN substr({shift}, 1, 1) = '-' THEN -{total} ELSE {total} END",
        )
        march = add("march", f"{y} - CASE WHEN {m} <= 2 THEN 1 ELSE 0 END")  # a year begins there
        months = f"{m} + CASE WHEN {m} > 2 THEN -3 ELSE 9 END"
        days = (
            f"365 * {march} + {march} {div} 4 - {march} {div} 100 + {march} {div} 400 + "
            f"(153 * ({months}) + 2) {div} 5 + {d}"
        )
        minute = f"({days}) * 1440 + {part(8)} * 60 + {part(11)} - coalesce({offset}, 0)"
        fraction = self._dialect.found(tail, "[.,][0-9]+")
        seconds = (
            f"CASE WHEN substr({tail}, 1, 1) = ':' THEN concat(substr({tail}, 2, 2), "
            f"'.', trim(TRAILING '0' FROM substr({fraction}, 2))) ELSE '00.' END"
        )
        return valid, minute, seconds, offset


def replaces(row: Order, table: Order, *, two_forms: str = "false", bare: str = "false") -> str:
    """A SQL condition, never NULL: the winner ``row`` of a load's rows of a key replaces the
    table's row. ``two_forms``: the load's rows of the key have two forms; ``bare``: the winner is a
    delete without a cursor."""
    higher = (
        f"({row.major} > {table.major} OR ({row.major} = {table.major} AND "
        f"coalesce({row.minor}, '') >= coalesce({table.minor}, '')))"
    )
    return (
        f"coalesce({two_forms}, false) OR ({bare}) OR {row.form} = {OTHER} "
        f"OR {row.form} <> {table.form} OR coalesce({higher}, false)"
    )


class Fold(NamedTuple):
    """How the rows of each key are put in order: ``stages`` of columns to add, by name, each of
    which may use those before; ``order``: columns, each with whether it descends, by which a key's
    rows are ordered then, the winner first (NULL is last); ``two_forms``: a SQL condition."""

    stages: tuple[dict[str, str], ...]
    order: tuple[tuple[str, bool], ...]
    two_forms: str

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for stage in self.stages for name in stage)


def fold(
    keys: str, arrival: str, order: Order | None, dialect: SqlDialect, *, bare: str = "false"
) -> Fold:
    """Folds the rows of each key. ``keys``: expressions, by comma; ``arrival``: the order in which
    rows came, as SQL (``a, b NULLS FIRST``); ``order`` None: it decides alone; ``bare``: a
    condition, the row is a delete without a cursor."""
    turn = {TURN: f"row_number() OVER (PARTITION BY {keys} ORDER BY {arrival})"}
    if order is None:
        return Fold((turn,), ((TURN, True),), "false")
    same = f"PARTITION BY {keys}"
    until = f"{same} ORDER BY {TURN} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    stages: list[dict[str, str]] = [turn]
    stages += ({name: sql} for name, sql in order.steps)
    if bare == "false":
        stages.append({FORM: order.form, MAJOR: order.major, MINOR: order.minor})
        values = (MAJOR, MINOR)
    else:
        own = f"CASE WHEN NOT ({bare}) THEN {order.form} END"
        pair = dialect.pair(order.major, order.minor)
        value = f"CASE WHEN NOT ({bare}) AND {order.major} IS NOT NULL THEN {pair} END"
        stages.append({_OWN: own, _VALUE: value})
        known = dialect.newest_known(_OWN, until)
        stages.append({FORM: f"coalesce({known}, {OTHER})"})
        values = (MAJOR,)
    stages.append({_BEFORE: f"lag({FORM}) OVER ({same} ORDER BY {TURN})"})
    changed = f"CASE WHEN {_BEFORE} <> {FORM} THEN 1 ELSE 0 END"
    stages.append({RUN: f"sum({changed}) OVER ({until})"})
    if bare != "false":
        run = f"PARTITION BY {keys}, {RUN} ORDER BY {TURN}"
        highest = f"max({_VALUE}) OVER ({run} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        stages.append({MAJOR: f"CASE WHEN {bare} THEN {highest} ELSE {_VALUE} END"})
    stages.append({TWO: f"max({RUN}) OVER ({same}) > 0"})
    return Fold((*stages,), ((RUN, True), *((v, True) for v in values), (TURN, True)), TWO)

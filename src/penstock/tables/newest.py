"""States the one rule for which row of a key is the newest, as SQL for DuckDB and for Spark.

A cursor has a *form*, a function of the value that its column stores: a number (a numeric column;
in text, a plain integer), a time (a column of times; in text, ISO 8601 with date and time of day),
a time without an offset, or other (all else: other text, dates alone, NULL, numbers that are not
finite). The rows of a key are folded in the order of their arrival: by sequence number or, in a
stream that is read in shards, by the highest extraction time that their lane has shown up to them,
then by lane. Within a form other than *other* the higher value wins, and ties go to the later row;
between two forms, and within *other*, the later row wins. Extraction times decide nothing else. A
delete without a cursor has the order of the row that the fold has at that moment.

:func:`fold` reduces the rows of a load to one row per key and one bit, whether two forms were met;
:func:`replaces` compares such a row with the table's. Both render the same expressions for both
engines (:data:`DUCKDB`, :data:`SPARK`), so that the two ways to a table cannot differ. Imports
neither engine. Not here: which files are read (``files.newest_rows``), DataFrames
(``frame.load_frame``)."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.types import SEQ_EPOCH_SHIFT, Kind

OTHER, NUMBER, TIME, WALL_CLOCK = range(4)  # forms

TEXTS = {Kind.string, Kind.number_text, Kind.json, Kind.time, Kind.time_tz}
_NUMBERS = {Kind.integer, Kind.decimal, Kind.number}
_TIMES = {Kind.date, Kind.timestamp, Kind.timestamp_ntz}
MAY_BE_CUT = {Kind.timestamp, Kind.timestamp_ntz, Kind.number}  # their columns hold fewer digits

_INTEGER_TEXT = r"^[+-]?[0-9]+\z"
_WHOLE = r"^-?[0-9]{1,38}\z"
_DAY = "(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_SECONDS = "(:([0-5][0-9]|60)([.,][0-9]+)?)?"
_CLOCK = f"(([01][0-9]|2[0-3]):[0-5][0-9]{_SECONDS}|24:00(:00([.,]0+)?)?)"
_OFFSET = "([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
_TIME_TEXT = rf"^[+-]?[0-9]{{4,9}}-{_DAY}[Tt ]{_CLOCK}{_OFFSET}\z"
_YEARS = 1_000_000_000  # added to a year, so that none is negative: whole cycles of the calendar
_DAYS = 365_243_219_469  # until 1970, counted from those years

FORM, MAJOR, MINOR = "_penstock_form", "_penstock_major", "_penstock_minor"
TURN = "_penstock_turn"  # the place of a row in the order of arrival of its key's rows
RUN = "_penstock_run"  # how often the form has changed before the row, among its key's rows
TWO = "_penstock_two_forms"  # whether the rows of its key have two forms
_OWN, _BEFORE, _VALUE = "_penstock_own_form", "_penstock_form_before", "_penstock_value"


class SqlDialect(NamedTuple):
    """Holds what the two engines write differently. ``quote``: quotes an identifier."""

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

    def day(self, sql: str) -> str:
        """Returns the number of a day, counted from 1970, of a text like 2024-05-01; NULL if it is
        not one."""
        day = f"try_cast({sql} AS DATE)"
        days = f"{day} - DATE '1970-01-01'" if self.name == "duckdb" else f"unix_date({day})"
        return f"CAST({days} AS BIGINT)"

    def is_json(self, sql: str) -> str:
        found = "json_valid({})" if self.name == "duckdb" else "(try_parse_json({}) IS NOT NULL)"
        return found.format(sql)

    def text_of_json(self, sql: str) -> str:
        """Returns the text of a JSON string; NULL for all else."""
        read = "json_extract_string" if self.name == "duckdb" else "get_json_object"
        string = f"{sql} LIKE '\"%\"' AND {self.is_json(sql)}"
        return f"CASE WHEN {string} THEN {read}({sql}, '$') END"

    def pair(self, one: str, other: str) -> str:
        if self.name == "duckdb":
            return f"{{'a': {one}, 'b': {other}}}"
        return f"named_struct('a', {one}, 'b', {other})"

    def newest_known(self, sql: str, over: str) -> str:
        """Returns the last value that is not NULL."""
        if self.name == "duckdb":
            return f"last_value({sql} IGNORE NULLS) OVER ({over})"
        return f"last_value({sql}) IGNORE NULLS OVER ({over})"


DUCKDB = SqlDialect("duckdb", "//", '"')
SPARK = SqlDialect("spark", "div", "`")


class Order(NamedTuple):
    """Holds SQL for the order of a cursor. ``steps``: columns to add, one after the other, each of
    which may use those before; then expressions: its form, and within a form ``major``, then
    ``minor``, which are NULL in form ``other``."""

    form: str
    major: str
    minor: str
    steps: tuple[tuple[str, str], ...] = ()


NO_ORDER = Order(str(OTHER), "CAST(NULL AS BIGINT)", "CAST(NULL AS STRING)")


def order_of(
    sql: str, kind: Kind, dialect: SqlDialect, *, as_text: bool = False, prefix: str = ""
) -> Order:
    """Returns the order of the cursor ``sql`` in a column of ``kind``. ``as_text``: all text has
    one form, whose values are compared byte by byte (``cursor_order: text``). ``prefix``: of the
    steps' names, to keep them apart from those of another cursor."""
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


def exactly(
    order: Order, sql: str, kind: Kind, sent: str, dialect: SqlDialect, *, known: str = "true"
) -> Order:
    """Extends ``order`` of the cursor ``sql``, of a kind in :data:`MAY_BE_CUT`, so that the digits
    that were cut decide between equal values. ``sent``: the source's text of a value that was cut,
    else NULL; ``known``: a condition: a value without such a text is exact; if it does not hold,
    another row with an equal value is as new or newer. Numbers are exact from 2^53 on, where all
    are integers."""
    if kind is not Kind.number:
        beyond = f"substr({dialect.found(sent, '[.,][0-9]{6}[0-9]+')}, 8)"
        return order._replace(minor=f"coalesce(trim(TRAILING '0' FROM {beyond}), '')")
    whole = (
        f"CASE WHEN {known} AND abs({sql}) < 9.2E18 THEN CAST(CAST({sql} AS BIGINT) AS {{}}) END"
    )
    whole = whole.format("VARCHAR" if dialect.name == "duckdb" else "STRING")
    text = f"CASE WHEN {dialect.matches(sent, _WHOLE)} THEN {sent} ELSE {whole} END"
    digits = f"lpad(trim(LEADING '-' FROM {text}), 38, '0')"
    upside_down = f"translate({digits}, '0123456789', '9876543210')"
    minor = f"CASE WHEN {sql} < 0 THEN {upside_down} ELSE {digits} END"
    return order._replace(minor=f"CASE WHEN abs({sql}) >= 9007199254740992 THEN {minor} END")


class _Steps:
    """Collects the steps that order text. Each is NULL for texts of a kind that it does not handle,
    which makes the common kinds cheap: engines compute nothing for NULL."""

    def __init__(self, dialect: SqlDialect, prefix: str) -> None:
        self._dialect, self._prefix = dialect, prefix
        self._steps: list[tuple[str, str]] = []

    def _add(self, name: str, sql: str) -> str:
        name = f"{self._prefix}{name}"
        self._steps.append((name, sql))
        return name

    def order(self, sql: str) -> Order:
        """Orders a number by the length of its digits, then by its digits; a time by its minute,
        then by its seconds, in which 60 is a leap second."""
        matches = self._dialect.matches
        # quotes: a column of JSON is text in the table, and has them around its texts
        ends = " OR ".join(f"{sql} LIKE '{like}'" for like in (" %", "% ", '"%', '%"'))
        text = self._add(
            "text", f"CASE WHEN {ends} THEN trim(BOTH ' \"' FROM {sql}) ELSE {sql} END"
        )
        integer = self._add("integer", f"CASE WHEN {matches(text, _INTEGER_TEXT)} THEN {text} END")
        digits = self._add("digits", f"trim(LEADING '+-0' FROM {integer})")
        minus = f"{integer} LIKE '-%'"
        length = f"CAST(length({digits}) AS BIGINT)"
        upside_down = f"translate({digits}, '0123456789', '9876543210')"
        tail, minute, seconds, zone = self._time(f"CASE WHEN {integer} IS NULL THEN {text} END")
        form = (
            f"CASE WHEN {integer} IS NOT NULL THEN {NUMBER} WHEN {tail} IS NULL THEN {OTHER} "
            f"WHEN {zone} = '' THEN {WALL_CLOCK} ELSE {TIME} END"
        )
        major = (
            f"CASE WHEN {integer} IS NULL THEN {minute} "
            f"WHEN {minus} THEN -{length} ELSE {length} END"
        )
        minor = (
            f"CASE WHEN {integer} IS NULL THEN {seconds} "
            f"WHEN {minus} THEN {upside_down} ELSE {digits} END"
        )
        return Order(form, major, minor, (*self._steps,))

    def _time(self, text: str) -> tuple[str, str, str, str]:
        """Returns, for a time: the text after its minute; a number that grows with its minute; its
        seconds as text with all digits; its offset, empty if it has none. NULL for all else."""
        add = self._add
        text = add("no_integer", text)
        # 20240501T1200
        colon = f"CASE WHEN substr({text}, 14, 1) BETWEEN '0' AND '9' THEN ':' ELSE '' END"
        basic = (
            f"concat(substr({text}, 1, 4), '-', substr({text}, 5, 2), '-', substr({text}, 7, 5), "
            f"':', substr({text}, 12, 2), {colon}, substr({text}, 14))"
        )
        s = add(
            "spelled", f"CASE WHEN substr({text}, 9, 1) IN ('T', 't') THEN {basic} ELSE {text} END"
        )
        s = add("like_time", f"CASE WHEN {self._dialect.matches(s, _TIME_TEXT)} THEN {s} END")
        common = f"{s} LIKE '1___-%' OR {s} LIKE '2___-%'"
        rare = add("rare", f"CASE WHEN NOT ({common}) THEN {s} END")
        rare_rest, rare_day = self._rare_day(rare)
        here = f"{rare} IS NULL"
        rest = add("rest", f"CASE WHEN {here} THEN substr({s}, 5) ELSE {rare_rest} END")
        of_common = self._dialect.day(f"CASE WHEN {here} THEN substr({s}, 1, 10) END")
        day = add("day", f"CASE WHEN {here} THEN {of_common} ELSE {rare_day} END")
        # of a time alone: :SS.fff and an offset
        tail = add("tail", f"CASE WHEN {day} IS NOT NULL THEN substr({rest}, 13) END")
        signs = " ".join(
            f"WHEN substr(right({tail}, {n}), 1, 1) IN ('+', '-') THEN right({tail}, {n})"
            for n in (6, 5, 3)
        )
        zone = add(
            "zone",
            f"CASE WHEN {tail} LIKE '%Z' OR {tail} LIKE '%z' THEN 'Z' "
            f"WHEN {tail} LIKE '%+%' OR {tail} LIKE '%-%' THEN CASE {signs} END "
            f"WHEN {tail} IS NOT NULL THEN '' END",
        )
        minutes = f"CASE WHEN length({zone}) > 3 THEN {_number(f'right({zone}, 2)', 1)} ELSE 0 END"
        shift = (
            f"CASE WHEN {zone} IN ('', 'Z') THEN 0 ELSE ({_number(zone, 2)} * 60 + {minutes}) * "
            f"CASE WHEN {zone} LIKE '-%' THEN -1 ELSE 1 END END"
        )
        minute = f"({day} * 1440 + {_number(rest, 8)} * 60 + {_number(rest, 11)} - {shift})"
        digits = f"substr({tail}, 5, greatest(length({tail}) - 4 - length({zone}), 0))"
        seconds = (
            f"CASE WHEN {tail} LIKE ':%' THEN concat(substr({tail}, 2, 2), '.', "
            f"trim(TRAILING '0' FROM {digits})) WHEN {tail} IS NOT NULL THEN '00.' END"
        )
        return tail, minute, seconds, zone

    def _rare_day(self, text: str) -> tuple[str, str]:
        """Handles times in years other than 1000 to 2999. Returns the text after the year,
        -MM-DDTHH:MM and more; and the day's number, counted from 1970, NULL if the month has no
        such day."""
        add, div = self._add, self._dialect.divide
        year = add("year_text", self._dialect.found(text, "^[+-]?[0-9]+"))
        rest = add("rare_rest", f"substr({text}, length({year}) + 1)")
        y = add("year", f"try_cast({year} AS BIGINT) + {_YEARS}")
        m, d = add("month", _number(rest, 2)), add("month_day", _number(rest, 5))
        leap = f"{y} % 4 = 0 AND ({y} % 100 <> 0 OR {y} % 400 = 0)"
        last = (
            f"CASE WHEN {m} = 2 THEN CASE WHEN {leap} THEN 29 ELSE 28 END "
            f"WHEN {m} IN (4, 6, 9, 11) THEN 30 ELSE 31 END"
        )
        march = add("march", f"{y} - CASE WHEN {m} <= 2 THEN 1 ELSE 0 END")  # a year begins there
        months = f"{m} + CASE WHEN {m} > 2 THEN -3 ELSE 9 END"
        days = (
            f"365 * {march} + {march} {div} 4 - {march} {div} 100 + {march} {div} 400 + "
            f"(153 * ({months}) + 2) {div} 5 + {d} - {_DAYS}"
        )
        return rest, f"CASE WHEN {d} <= {last} THEN {days} END"


def _number(sql: str, start: int) -> str:
    """Returns the number of two digits of a text."""
    return f"try_cast(substr({sql}, {start}, 2) AS BIGINT)"


def replaces(
    row: Order,
    table: Order,
    *,
    two_forms: str = "false",
    bare: str = "false",
    retried: bool = False,
) -> str:
    """Returns a SQL condition, never NULL: the winner ``row`` of a load's rows of a key replaces
    the table's row. ``two_forms``: the load's rows of the key have two forms; ``bare``: the winner
    is a delete without a cursor. ``retried``: the load's rows count as older than the table's, so
    that only a higher cursor of the same form is newer."""
    if retried:
        above = (
            f"({row.major} > {table.major} OR ({row.major} = {table.major} AND "
            f"{row.minor} > {table.minor}))"
        )
        same = f"{row.form} = {table.form} AND {row.form} <> {OTHER}"
        return f"coalesce({same} AND {above}, false)"
    higher = (
        f"({row.major} > {table.major} OR ({row.major} = {table.major} AND "
        f"coalesce({row.minor}, '') >= coalesce({table.minor}, '')))"
    )
    return (
        f"coalesce({two_forms}, false) OR ({bare}) OR {row.form} = {OTHER} "
        f"OR {row.form} <> {table.form} OR coalesce({higher}, false)"
    )


class Fold(NamedTuple):
    """Describes how the rows of each key are ordered: ``stages`` of columns to add, by name, each
    of which may use those before; ``order``: columns, each with whether it descends, which then
    order a key's rows, the winner first (NULL is last); ``two_forms``: a SQL condition; ``won``:
    another: the row was the newest of those up to it."""

    stages: tuple[dict[str, str], ...]
    order: tuple[tuple[str, bool], ...]
    two_forms: str
    won: str

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for stage in self.stages for name in stage)


def lane_sql(shards: Sequence[tuple[int, int]], seq: str, dialect: SqlDialect) -> str:
    """Returns SQL for the lane of a row with the sequence number ``seq`` (``Load.shards``)."""
    lanes = " ".join(f"WHEN {epoch} THEN {lane}" for epoch, lane in shards)
    return f"CASE {seq} {dialect.divide} {1 << SEQ_EPOCH_SHIFT} {lanes} END"


def one_form(arrival: Sequence[str], order: Order) -> tuple[tuple[str, bool], ...]:
    """Like ``Fold.order``, for rows whose cursors all have one form, without deletes that lack a
    cursor. ``order``: columns."""
    return ((order.major, True), (order.minor, True), *((name, True) for name in arrival))


def fold(
    keys: str,
    arrival: Sequence[str],
    order: Order | None,
    dialect: SqlDialect,
    *,
    bare: str = "false",
) -> Fold:
    """Folds the rows of each key. ``keys``: expressions, separated by commas; ``arrival``: columns
    that give the order of arrival (NULL is first); ``order`` None: arrival alone decides; ``bare``:
    a condition: the row is a delete without a cursor."""
    came = ", ".join(f"{name} ASC NULLS FIRST" for name in arrival)
    turn = {TURN: f"row_number() OVER (PARTITION BY {keys} ORDER BY {came})"}
    if order is None:
        return Fold((turn,), ((TURN, True),), "false", "true")
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
        # NULL where it has none before it: then what follows decides
        stages.append({FORM: dialect.newest_known(_OWN, until)})
        values = (MAJOR,)
    stages.append({_BEFORE: f"lag({FORM}) OVER ({same} ORDER BY {TURN})"})
    changed = f"CASE WHEN {_BEFORE} <> {FORM} THEN 1 ELSE 0 END"
    stages.append({RUN: f"sum({changed}) OVER ({until})"})
    run = f"PARTITION BY {keys}, {RUN} ORDER BY {TURN}"
    run += " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    value = MAJOR
    if bare != "false":
        highest = f"max({_VALUE}) OVER ({run})"
        stages.append({MAJOR: f"CASE WHEN {bare} THEN {highest} ELSE {_VALUE} END"})
    else:
        value = dialect.pair(MAJOR, MINOR)
    stages.append({TWO: f"max({RUN}) OVER ({same}) > 0"})
    won = f"coalesce({value} >= max({value}) OVER ({run}), true)"
    return Fold((*stages,), ((RUN, True), *((v, True) for v in values), (TURN, True)), TWO, won)

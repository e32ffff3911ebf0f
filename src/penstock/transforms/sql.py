"""``transform-sql``: one query over each batch, by DataFusion.

The batch is the only table, ``input``; what comes out has the types of ``codec.arrow``. Planned on
an empty table, so faults are told before a connector starts. Not here: SQL over a whole stream,
which is Spark's. Neighbours: ``sql_plan`` reads the plan, ``sql_words`` the errors.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext, SQLOptions
from datafusion.plan import LogicalPlan

from penstock.codec.arrow import arrow_type
from penstock.codec.columns import row_schema
from penstock.codec.internal import ascending
from penstock.codec.untyped import ArrowSchema, ArrowType, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError, Defect, SourceError
from penstock.model.names import clean_columns
from penstock.model.types import Field, RowSchema
from penstock.transforms import sql_plan, sql_words
from penstock.transforms.contract import Applied
from penstock.transforms.settings import faulty, query_of

_USE = "transform-sql"
_QUERY_CODE = "transform.query"
_MOST_COLUMNS = 40
_MOST_QUERY = 300
_BATCH_ROWS = 65_536

_OPTIONS = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
_ADVICE = "config takes query: a SELECT over the table input"
_NO_INPUT = "the query does not read the table input"


class SqlTransform:
    """One query. Raises ``ConfigError`` for a config that is none (``config.transform``) and for a
    query that is none over whatever columns (``transform.query``)."""

    def __init__(self, config: Mapping[str, Any], *, where: str) -> None:
        self._query = query_of(config, _USE, where, _ADVICE)
        self._place = f"{where}.config.query"
        self._check_alone()
        self._planned: ArrowSchema | None = None
        self._same_rows = False

    @property
    def same_columns(self) -> bool:
        return False

    def output(self, schema: RowSchema) -> RowSchema:
        """Raises ``ConfigError`` (``transform.query``). A column whose values a plain projection
        takes over keeps its type (JSON stays JSON), and its original name with its name."""
        empty = _arrow(schema).empty_table()
        names = [f.name for f in schema.fields]
        context = _context(empty)
        try:
            frame = context.sql_with_options(self._query, _OPTIONS)
            plan = frame.logical_plan()
            self._refuse_statement(plan, names)
            if not sql_plan.reads_input(plan):
                raise self._fault(_NO_INPUT, names)
            frame.execution_plan()
            columns = frame.schema()
        except ConfigError:
            raise
        except BaseException as e:
            _let_through(e)
            raise self._fault(sql_words.refused(e), names) from None
        self._check_columns(columns, names)
        fields = _fields(columns, sql_plan.untouched(plan, names), schema)
        self._planned = _arrow(RowSchema(fields))
        self._same_rows = sql_plan.same_rows(plan)
        return RowSchema(fields)

    def apply(self, batch: Table) -> Applied:
        """Raises ``SourceError`` (``transform.failed``)."""
        if self._planned is None:
            raise Defect("transform-sql was given a batch before its schema")
        context = _context(batch)
        try:
            frame = context.sql_with_options(self._query, _OPTIONS)
            if self._same_rows:
                frame = _numbered(frame, context, batch)
            return _applied(frame.to_arrow_table(), self._planned, self._same_rows)
        except BaseException as e:
            _let_through(e)
            failure = sql_words.failed(e)
            query = " ".join(self._query.split())
            shown = query if len(query) <= _MOST_QUERY else query[: _MOST_QUERY - 3] + "..."
            raise SourceError(
                f"{_USE} failed on a batch: {failure.what}; the query is: {shown}",
                code="transform.failed",
                where=self._place,
                hint=failure.advice,
            ) from None

    def _check_alone(self) -> None:
        """Without any table: what the planner then says first is so for every stream, unless it is
        that it misses ``input``."""
        try:
            frame = SessionContext(_config()).sql_with_options(self._query, _OPTIONS)
            self._refuse_statement(frame.logical_plan(), None)
        except ConfigError:
            raise
        except BaseException as e:
            _let_through(e)
            if sql_words.misses(e, sql_plan.INPUT):
                return
            raise self._fault(sql_words.refused(e), None) from None
        raise self._fault(_NO_INPUT, None)

    def _refuse_statement(self, plan: LogicalPlan, names: list[str] | None) -> None:
        statement = sql_plan.no_query(plan)
        if statement is not None:
            raise self._fault(
                f"refused: a statement that is no query ({statement}); a transform is one SELECT "
                "over input",
                names,
            )

    def _check_columns(self, columns: ArrowSchema, names: list[str]) -> None:
        given = list(columns.names)
        if not given:
            raise self._fault("the query selects no column", names)
        problems = [
            f"the column '{name}' comes {given.count(name)} times; name each with AS"
            for name in dict.fromkeys(given)
            if given.count(name) > 1
        ]
        problems += [
            f"column {i + 1} has no name; name it with AS" for i, n in enumerate(given) if not n
        ]
        for found, wanted in zip(columns, row_schema(columns).fields, strict=True):
            try:
                _cast(pa.chunked_array([], found.type), arrow_type(wanted.type))
            except pa.ArrowNotImplementedError:
                problems.append(f"the column '{found.name}' is {found.type}, a type of no table; "
                                "CAST it to another")  # fmt: skip
        if problems:
            raise self._fault(problems, names)

    def _fault(self, what: str | list[str], names: list[str] | None) -> ConfigError:
        """``names``: of the columns of input; None: that is not about them."""
        lines = [what] if isinstance(what, str) else what
        return faulty(
            [f"{self._place}: {line}" for line in lines],
            _USE,
            self._place,
            advice=_ADVICE if names is None else f"the columns of input are: {_listed(names)}",
            code=_QUERY_CODE,
        )


def _listed(names: list[str]) -> str:
    shown = [n if n.islower() and n.isidentifier() else f'"{n}"' for n in names[:_MOST_COLUMNS]]
    more = len(names) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])]) or "none"


def _config() -> SessionConfig:
    """One partition: rows keep their order. Strings stay plain; clocks show UTC."""
    config = SessionConfig().with_target_partitions(1).with_information_schema(False)
    config = config.with_batch_size(_BATCH_ROWS)
    config = config.set("datafusion.sql_parser.map_string_types_to_utf8view", "false")
    return config.set("datafusion.execution.time_zone", "+00:00")


def _context(batch: Table) -> SessionContext:
    context = SessionContext(_config())
    _register(context, batch)
    return context


def _register(context: SessionContext, batch: Table) -> None:
    pieces = batch.to_batches() or [pa.RecordBatch.from_pylist([], schema=batch.schema)]
    context.register_record_batches(sql_plan.INPUT, [pieces])


def _numbered(frame: DataFrame, context: SessionContext, batch: Table) -> DataFrame:
    rows = ascending(0, batch.num_rows)

    def table() -> DataFrame:
        context.deregister_table(sql_plan.INPUT)
        _register(context, batch.append_column(sql_plan.ROW, rows))
        return context.table(sql_plan.INPUT)

    return sql_plan.with_rows(frame.logical_plan(), context, table)


def _applied(found: Table, planned: ArrowSchema, numbered: bool) -> Applied:
    origin = None
    if numbered:
        origin = pa.concat_arrays(found.column(sql_plan.ROW).chunks or [pa.array([], pa.int64())])
        found = found.drop_columns([sql_plan.ROW])
    columns = [_cast(c, f.type) for c, f in zip(found.columns, planned, strict=True)]
    return Applied(pa.Table.from_arrays(columns, schema=planned), origin=origin)


def _cast(column: ChunkedArray, wanted: ArrowType) -> ChunkedArray:
    """Only what is finer than a microsecond is lost."""
    if column.type == wanted:
        return column
    return pc.cast(column, options=pc.CastOptions(wanted, allow_time_truncate=True))


def _arrow(schema: RowSchema) -> ArrowSchema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in schema.fields])


def _fields(
    columns: ArrowSchema, untouched: list[str | None], schema: RowSchema
) -> tuple[Field, ...]:
    """Names that a table can carry; the one that the query gives is the original."""
    given = list(columns.names)
    cleaned = clean_columns(given)
    known = {f.name: f for f in schema.fields}
    fields: list[Field] = []
    same = untouched if len(untouched) == len(given) else [None] * len(given)
    for found, source in zip(row_schema(columns).fields, same, strict=True):
        kept = known.get(source) if source is not None else None
        original, data_type = found.name, found.type
        if kept is not None and arrow_type(kept.type) == columns.field(found.name).type:
            data_type = kept.type
            if kept.name == found.name and kept.source not in cleaned:
                original = kept.source
        fields.append(Field(cleaned[found.name], original, data_type))
    return tuple(fields)


def _let_through(error: BaseException) -> None:
    """Raises what is not about the query. A panic of DataFusion is no ``Exception``."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error

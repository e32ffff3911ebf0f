"""Implements ``transform-sql``: runs one query over each batch by DataFusion.

The batch is the only table, ``input``; the output has the types of ``codec.arrow``. The query is
planned on an empty table, so that its faults are reported before a connector starts. Not here: SQL
over a whole stream (``spark_sql``). Neighbours: ``sql_plan`` reads the plan, ``sql_errors`` words
the errors, ``sql_bounds`` runs the query within its limits.
"""

from collections.abc import Mapping, Set
from typing import Any

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext, SQLOptions
from datafusion.plan import LogicalPlan

from penstock.codec import frame_types
from penstock.codec.arrow import (
    arrow_type,
    frame_types_of,
    proved,
    required,
    with_frame_types,
)
from penstock.codec.columns import row_schema
from penstock.codec.system_columns import ascending
from penstock.codec.untyped import Array, ArrowSchema, ArrowType, ChunkedArray, Table
from penstock.codec.untyped import compute as pc
from penstock.errors import ConfigError, Defect, SourceError
from penstock.model.names import clean_columns
from penstock.model.types import EXTRA, Field, Origin, RowSchema
from penstock.transforms import sql_bounds, sql_errors, sql_plan
from penstock.transforms.config_errors import read_query, transform_error
from penstock.transforms.contract import TransformResult
from penstock.transforms.sql_bounds import QueryBounds, Tick

_USE = "transform-sql"
_QUERY_CODE = "transform.query"
_MAX_COLUMNS_SHOWN = 40
_MAX_QUERY_SHOWN = 300
_BATCH_ROWS = 65_536

_OPTIONS = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
_ADVICE = "config takes query: a SELECT over the table input"
_NO_INPUT = "the query does not read the table input"


class SqlTransform:
    """One query. ``where``: the transform's path in the pipeline file; ``tick``: see
    ``sql_bounds.run_bounded``. Raises ``ConfigError`` for a faulty config (``config.transform``)
    and for a query that no input could make valid (``transform.query``)."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        where: str,
        bounds: QueryBounds | None = None,
        tick: Tick = lambda: None,
    ) -> None:
        self._bounds, self._tick = bounds or QueryBounds(), tick
        self._query = read_query(config, _USE, where, _ADVICE)
        self._path = f"{where}.config.query"
        self._check_alone()
        self._planned: ArrowSchema | None = None
        self._unchanged: list[str | None] = []
        self._keeps_rows = False
        self._kept: Set[str] = frozenset()

    @property
    def same_columns(self) -> bool:
        return False

    def keeps(self, columns: Set[str]) -> bool:
        return self._keeps_rows and columns <= self._kept

    def output(self, schema: RowSchema) -> RowSchema:
        """Returns the schema of the query's result. A column that a plain projection copies keeps
        its type (JSON stays JSON) and, unless it is renamed, its original name. Raises
        ``ConfigError`` (``transform.query``)."""
        empty = _arrow(schema).empty_table()
        names = [f.name for f in schema.fields]
        context = self._context(empty)
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
            raise self._fault(sql_errors.planning_failure(e), names) from None
        self._check_columns(columns, names)
        self._unchanged = sql_plan.unchanged_columns(plan, names)
        fields = _fields(columns, self._unchanged, schema)
        same = zip(columns.names, self._unchanged, strict=False)
        self._kept = {name for name, source in same if name == source}
        self._planned = _arrow(RowSchema(fields))
        self._keeps_rows = sql_plan.keeps_rows(plan)
        return RowSchema(fields)

    def apply(self, batch: Table, deletes: Array | None = None) -> TransformResult:
        """Runs the query on ``batch``, deletes included. Columns copied from non-null ones, and
        those that DataFusion declares non-null, are non-null in the result. Copied columns keep
        their frame types, and numbers have that of DataFusion's column. Raises ``SourceError``
        (``transform.failed``)."""
        del deletes
        try:
            return sql_bounds.run_bounded(
                lambda: self._applied(batch), self._bounds.seconds, self._tick
            )
        except sql_bounds.QueryTimeout:
            failure = sql_errors.Failure(
                f"it took longer than {self._bounds.seconds:g} s",
                "raise limits.timeout_seconds of this transform, or compute less: a join of input "
                "with itself, and a series, grow with the batch",
            )
        except sql_bounds.QueryFailed as e:
            _let_through(e.cause)
            exhausted = isinstance(e.cause, sql_bounds.ResultTooLarge) or sql_errors.out_of_memory(
                e.cause
            )
            failure = self._out_of_memory() if exhausted else sql_errors.runtime_failure(e.cause)
        raise self._failed(failure) from None

    def _applied(self, batch: Table) -> TransformResult:
        if self._planned is None:
            raise Defect("transform-sql was given a batch before its schema")
        non_null, sent = required(batch), frame_types_of(batch.schema)
        batch = _as_planned(batch)
        context = self._context(batch)
        frame = context.sql_with_options(self._query, _OPTIONS)
        if self._keeps_rows:
            frame = _numbered(frame, context, batch)
        rows = sql_bounds.collect(frame, self._bounds)
        applied = _applied(rows, self._planned, self._keeps_rows)
        copies = list(zip(applied.table.column_names, self._unchanged, strict=False))
        columns = [name for name, source in copies if source in non_null]
        types = {name: sent[source] for name, source in copies if source in sent}
        types = frame_types_of(applied.table.schema) | types
        applied.table = with_frame_types(proved(applied.table, columns), types)
        return applied

    def _context(self, batch: Table) -> SessionContext:
        context = SessionContext(_config(), sql_bounds.environment(self._bounds))
        _register(context, batch)
        return context

    def _out_of_memory(self) -> sql_errors.Failure:
        return sql_errors.Failure(
            f"it needs more than {self._bounds.memory} bytes of memory",
            "raise limits.max_memory of this transform, or compute less: a join of input with "
            "itself grows with the batch",
        )

    def _failed(self, failure: sql_errors.Failure) -> SourceError:
        query = " ".join(self._query.split())
        shown = query if len(query) <= _MAX_QUERY_SHOWN else query[: _MAX_QUERY_SHOWN - 3] + "..."
        return SourceError(
            f"{_USE} failed on a batch: {failure.what}; the query is: {shown}",
            code="transform.failed",
            where=self._path,
            hint=failure.advice,
        )

    def _check_alone(self) -> None:
        """Plans the query without any table. An error of the planner is then an error for every
        stream, unless it is that ``input`` is missing. Raises ``ConfigError``."""
        try:
            frame = SessionContext(_config()).sql_with_options(self._query, _OPTIONS)
            self._refuse_statement(frame.logical_plan(), None)
        except ConfigError:
            raise
        except BaseException as e:
            _let_through(e)
            if sql_errors.is_missing_table(e, sql_plan.INPUT):
                return
            raise self._fault(sql_errors.planning_failure(e), None) from None
        raise self._fault(_NO_INPUT, None)

    def _refuse_statement(self, plan: LogicalPlan, names: list[str] | None) -> None:
        statement = sql_plan.non_query_statement(plan)
        if statement is not None:
            raise self._fault(
                f"refused: a statement that is not a query ({statement}); a transform is one "
                "SELECT over input",
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
        for column, field in zip(columns, row_schema(columns).fields, strict=True):
            try:
                _cast(pa.chunked_array([], column.type), arrow_type(field.type))
            except pa.ArrowNotImplementedError:
                problems.append(f"the column '{column.name}' is {column.type}, a type of no table; "
                                "CAST it to another")  # fmt: skip
        if problems:
            raise self._fault(problems, names)

    def _fault(self, what: str | list[str], names: list[str] | None) -> ConfigError:
        """Makes the error for problems of the query. ``names``: the columns of ``input``, for the
        hint; None: the hint does not name them."""
        lines = [what] if isinstance(what, str) else what
        return transform_error(
            [f"{self._path}: {line}" for line in lines],
            _USE,
            self._path,
            advice=_ADVICE if names is None else f"the columns of input are: {_listed(names)}",
            code=_QUERY_CODE,
        )


def _listed(names: list[str]) -> str:
    shown = [
        n if n.islower() and n.isidentifier() else f'"{n}"' for n in names[:_MAX_COLUMNS_SHOWN]
    ]
    more = len(names) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])]) or "none"


def _config() -> SessionConfig:
    """DataFusion's settings: one partition, so that rows keep their order; strings as Arrow
    strings, not views; times in UTC."""
    config = SessionConfig().with_target_partitions(1).with_information_schema(False)
    config = config.with_batch_size(_BATCH_ROWS)
    config = config.set("datafusion.sql_parser.map_string_types_to_utf8view", "false")
    return config.set("datafusion.execution.time_zone", "+00:00")


def _register(context: SessionContext, batch: Table) -> None:
    pieces = batch.to_batches() or [pa.RecordBatch.from_pylist([], schema=batch.schema)]
    context.register_record_batches(sql_plan.INPUT, [pieces])


def _numbered(frame: DataFrame, context: SessionContext, batch: Table) -> DataFrame:
    rows = ascending(0, batch.num_rows)

    def table() -> DataFrame:
        context.deregister_table(sql_plan.INPUT)
        _register(context, batch.append_column(sql_plan.ROW, rows))
        return context.table(sql_plan.INPUT)

    return sql_plan.with_row_numbers(frame.logical_plan(), context, table)


def _applied(rows: Table, planned: ArrowSchema, numbered: bool) -> TransformResult:
    """Returns the result from the query's ``rows``, cast to the ``planned`` columns. ``numbered``:
    they have the column of row numbers, which becomes ``origin``."""
    origin = None
    if numbered:
        origin = pa.concat_arrays(rows.column(sql_plan.ROW).chunks or [pa.array([], pa.int64())])
        rows = rows.drop_columns([sql_plan.ROW])
    columns = [_cast(c, f.type) for c, f in zip(rows.columns, planned, strict=True)]
    fields = [f.with_nullable(own.nullable) for f, own in zip(planned, rows.schema, strict=True)]
    table = proved(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    pairs = zip(planned, rows.schema, strict=True)
    types = {f.name: own.type for f, own in pairs if _is_number(own.type)}
    table = with_frame_types(table, frame_types.names_of(types))
    return TransformResult(table, origin=origin)


def _is_number(arrow: ArrowType) -> bool:
    return pa.types.is_integer(arrow) or pa.types.is_floating(arrow)


def _as_planned(batch: Table) -> Table:
    """Returns ``batch`` with all columns nullable, as the query was planned: whether it can run
    must not depend on the nullability that a batch declares."""
    return batch.cast(pa.schema([f.with_nullable(True) for f in batch.schema]))


def _cast(column: ChunkedArray, wanted: ArrowType) -> ChunkedArray:
    """Casts a column to ``wanted``; fractions of a microsecond are cut off."""
    if column.type == wanted:
        return column
    return pc.cast(column, options=pc.CastOptions(wanted, allow_time_truncate=True))


def _arrow(schema: RowSchema) -> ArrowSchema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in schema.fields])


def _fields(
    columns: ArrowSchema, unchanged_columns: list[str | None], schema: RowSchema
) -> tuple[Field, ...]:
    """Returns the output's fields: cleaned names, with the query's names as original names. Columns
    copied from ``input`` (``unchanged_columns``) keep type and original name where they can."""
    given = list(columns.names)
    inputs = {f.name: f for f in schema.fields}
    fields: list[Field] = []
    same = unchanged_columns if len(unchanged_columns) == len(given) else [None] * len(given)
    passed = {EXTRA: EXTRA} if (EXTRA, EXTRA) in zip(given, same, strict=True) else {}
    cleaned = clean_columns(given, passed)
    for field, source in zip(row_schema(columns).fields, same, strict=True):
        kept = inputs.get(source) if source is not None else None
        original, data_type, origin = field.name, field.type, None
        if kept is not None and arrow_type(kept.type) == columns.field(field.name).type:
            data_type = kept.type
            if kept.name == field.name and kept.source not in cleaned:
                original = kept.source
                origin = kept.origin if kept.origin is Origin.undeclared else None
        fields.append(Field(cleaned[field.name], original, data_type, origin=origin))
    return tuple(fields)


def _let_through(error: BaseException) -> None:
    """Reraises ``error`` unless it is the query's: an ``Exception``, or a panic of DataFusion,
    which is not an ``Exception``."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error

"""A destination that writes tables of a Postgres server: append, and upsert by primary key.

All of a run is one transaction, committed at the end of the stream; then comes its one checkpoint.
So a run that fails leaves nothing behind, and one whose answer to COMMIT got lost says that it does
not know. Tables and new columns are made as they are met.
"""

import json
import math
from datetime import UTC, date, datetime, timedelta

from componentize_py_types import Err
from postgres_client import Server
from rapidbyte_guest import host
from rapidbyte_guest.faults import UNKNOWN, fault
from wit_world import exports

ROWS = 1000
"""In a statement."""

SQL_TYPES = {
    "null": "text", "bool": "boolean", "utf8": "text", "large_utf8": "text",
    "binary": "bytea", "large_binary": "bytea", "date32": "date",
    "int8": "smallint", "int16": "smallint", "int32": "integer", "int64": "bigint",
    "uint8": "smallint", "uint16": "integer", "uint32": "bigint", "uint64": "numeric",
    "float32": "real", "float64": "double precision", "timestamp_millis": "timestamp",
    "timestamp_micros": "timestamp", "timestamp_nanos": "timestamp",
}  # fmt: skip
PER_SECOND = {"timestamp_millis": 10**3, "timestamp_micros": 10**6, "timestamp_nanos": 10**9}
EPOCH, FIRST = datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1)
CONFIG = {}  # the bindings make a Destination for each call


def name(text):
    return '"' + text.replace('"', '""') + '"'


def sql_type(kind):
    """Of a decimal its precision and scale are SQL's too."""
    return SQL_TYPES.get(kind) or kind.replace("decimal128", "numeric")


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def moment(value, per_second):
    seconds, rest = divmod(value, per_second)
    whole = EPOCH + timedelta(seconds=seconds, microseconds=rest * 10**6 // per_second)
    return quoted(whole.replace(tzinfo=None).isoformat(" "))


def number(value):
    if math.isfinite(value):
        return repr(value)
    return quoted("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")


def literals(column):
    """The column's values as SQL writes them."""
    kind = column.type
    if kind in PER_SECOND:
        write = lambda v: moment(v, PER_SECOND[kind])  # noqa: E731
    elif kind == "date32":
        write = lambda v: quoted(str(FIRST + timedelta(days=v)))  # noqa: E731
    elif kind.startswith("float"):
        write = number
    elif kind.endswith("utf8"):
        write = quoted
    elif kind.endswith("binary"):
        write = lambda v: f"'\\x{v.hex()}'"  # noqa: E731
    else:
        write = str  # integers, decimals, True and False
    try:
        return ["NULL" if v is None else write(v) for v in column.values]
    except (OverflowError, ValueError) as e:
        raise fault("data", "OUT_OF_RANGE", f"column {column.name}: {e}", scope="batch") from e


class Destination(exports.Destination):
    def open(self, config_json):
        CONFIG.update(json.loads(config_json))
        return 1

    def validate(self, session):
        server = Server(CONFIG)
        server.query("SELECT 1")
        server.close()
        return host.success("the server lets us in")

    def close(self, session):
        pass

    def run(self, session, request):
        context = json.loads(request.stream_context_json)
        table = Table(context)
        rows = size = frames = 0
        server = Server(CONFIG)
        try:
            server.query("BEGIN; SET LOCAL standard_conforming_strings = on")
            for batches, length in host.frames():
                for columns in batches:
                    for statement in table.statements(columns):
                        server.query(statement)
                    rows += len(columns[0].values)
                size, frames = size + length, frames + 1
            commit(server)
        except Err:
            server.drop()
            raise
        host.destination_checkpoint(1, context["stream_name"], rows, size)
        server.close()
        return host.write_summary(rows, size, frames, 1)


def commit(server):
    try:
        server.query("COMMIT")
    except Err as e:
        if e.value.code.startswith("SQL_"):
            raise  # the server says that it did not
        raise fault("transient_db", "COMMIT_LOST", e.value.message, commit=UNKNOWN) from e


class Table:
    """What is known of the stream's table, and the statements that bring it rows."""

    def __init__(self, context):
        schema = CONFIG.get("schema", "public")
        self.name = f"{name(schema)}.{name(context['stream_name'])}"
        mode = context.get("write_mode") or {"mode": "append"}
        self.key = mode.get("primary_key") or [] if mode["mode"] == "upsert" else []
        self.known = None

    def statements(self, columns):
        described = [(column.name, column.type) for column in columns]
        if described != self.known:
            yield from self.made(described)
            self.known = described
        rows = list(zip(*map(literals, columns), strict=True))
        names = [column.name for column in columns]
        insert = f"INSERT INTO {self.name} ({', '.join(map(name, names))}) VALUES "
        for at in range(0, len(rows), ROWS):
            some = self.newest(names, rows[at : at + ROWS])
            values = ", ".join(f"({', '.join(row)})" for row in some)
            yield insert + values + self.conflict(names)

    def made(self, described):
        sql = [f"{name(column)} {sql_type(kind)}" for column, kind in described]
        key = f", PRIMARY KEY ({', '.join(map(name, self.key))})" if self.key else ""
        yield f"CREATE TABLE IF NOT EXISTS {self.name} ({', '.join(sql)}{key})"
        added = ", ".join(f"ADD COLUMN IF NOT EXISTS {column}" for column in sql)
        yield f"ALTER TABLE {self.name} {added}"

    def newest(self, names, rows):
        """One row for each key: a statement may not touch a row twice."""
        if not self.key:
            return rows
        if missing := set(self.key) - set(names):
            raise fault("schema", "NO_KEY", f"the rows have no column {', '.join(sorted(missing))}")
        places = [names.index(column) for column in self.key]
        return {tuple(row[place] for place in places): row for row in rows}.values()

    def conflict(self, names):
        if not self.key:
            return ""
        rest = [f"{name(n)} = EXCLUDED.{name(n)}" for n in names if n not in self.key]
        does = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
        return f" ON CONFLICT ({', '.join(map(name, self.key))}) DO {does}"

"""Defines the tables of the SQL store, and the migrations that create and change them.

A migration in ``MIGRATIONS`` is never edited once released; a change is a new one. The ``Table``
objects are the tables after the last migration (a test compares the two). Not here: what the
columns mean to a run (``contract``), how they are read and written (``sql``, ``ledger``).

Times are seconds since 1970. Streams and state scopes are stored by their ``key``. ``body`` is
JSON; ``blob`` is a state as the source sent it, byte for byte (L1). Connector keys and values are
stored as UTF-8 bytes: they may hold U+0000, which no text column takes.
"""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    LargeBinary,
    MetaData,
    Table,
    Text,
    select,
    update,
)
from sqlalchemy.engine import Connection

from penstock.errors import StateError

METADATA = MetaData()


def _table(name: str, *columns: "Column[object]") -> Table:
    return Table(f"penstock_{name}", METADATA, *columns)


def _text(name: str, *, null: bool = False, key: bool = False) -> "Column[object]":
    return Column(name, Text, nullable=null, primary_key=key)


def _int(name: str, *, null: bool = False, key: bool = False) -> "Column[object]":
    return Column(name, BigInteger, nullable=null, primary_key=key, autoincrement=False)


def _bytes(name: str) -> "Column[object]":
    return Column(name, LargeBinary, nullable=False)


SCHEMA = _table("schema", _int("version"))
PIPELINES = _table(
    "pipelines",
    _text("name", key=True),
    _text("state_id"),
    _text("token", null=True),  # NULL: no run has the lease
    _text("holder", null=True),
    _text("holder_mark", null=True),
    Column("lease_until", Float(53), nullable=True),
    _int("epoch"),  # the last number given, like the next two columns
    _int("last_group"),
    _int("last_history"),
    _text("floors"),  # JSON: groups of epochs up to these save no states
    _text("source_protocol", null=True),  # NULL: no run has stored it, like the next column
    _text("source_reference", null=True),
)
EPOCHS = _table(
    "epochs",
    _text("pipeline", key=True),
    _int("epoch", key=True),
    _int("lane", null=True),
    _int("last_seq", null=True),  # NULL: not closed
    _int("shares", null=True),  # NULL: not given, or the epoch is forgotten
)
GENERATIONS = _table(
    "generations", _text("pipeline", key=True), _text("stream", key=True), _int("generation")
)
NUMBERS = _table(
    "numbers",
    _text("pipeline", key=True),
    _text("stream", key=True),
    _int("number"),
    _int("table_number", null=True),  # NULL: any
    _int("adopts"),
    _int("anew"),
)
GROUPS = _table(
    "groups",
    _text("pipeline", key=True),
    _int("id", key=True),
    _int("done"),  # 1: every load is committed, its states wait for an older group
    _text("body"),
)
GROUP_KEYS = _table(
    "group_keys", _text("pipeline", key=True), _text("key", key=True), _int("id", key=True)
)
LOADS = _table(
    "loads",
    _text("pipeline", key=True),
    _int("id", key=True),
    _text("key", key=True),
    _int("number", key=True),
    _int("committed"),
)
CONSUMED = _table(
    "consumed",
    _text("pipeline", key=True),
    _int("epoch", key=True),
    _int("seq", key=True),
    _text("stream", key=True),
)
STATES = _table(
    "states",
    _text("pipeline", key=True),
    _text("scope", key=True),
    _text("type"),
    _int("position"),
    _text("blob"),
)
HISTORY = _table(
    "history",
    _text("pipeline", key=True),
    _int("id", key=True),
    Column("at", Float(53), nullable=False),
    _text("run"),
    _text("scope"),
    _text("type"),
    _text("blob", null=True),  # NULL: the state was removed
)
NAMES = _table("names", _text("pipeline", key=True), _text("kind", key=True), _text("body"))
SCHEMAS = _table(
    "schemas",
    _text("pipeline", key=True),
    _text("stream", key=True),
    _int("version", key=True),
    _text("body"),
)
OVERRIDES = _table(
    "overrides",
    _text("pipeline", key=True),
    _text("role", key=True),
    _text("base_hash"),
    _text("config"),
)
RUNS = _table(
    "runs",
    _text("pipeline", key=True),
    _text("run", key=True),
    _text("token"),
    _text("started_at"),
    _text("report", null=True),
)
KEY_TASKS = _table(  # tasks that may write keys now
    "key_tasks", _text("pipeline", key=True), _text("task", key=True), _int("marks")
)
KEYS = _table(  # versions of a key: the durable one, and those that tasks wrote since
    "keys",
    _text("pipeline", key=True),
    _text("slot", key=True),  # hash of scope, owner and key, which may be too long to index
    _int("version", key=True),  # the newest counts
    _text("scope"),
    _bytes("owner"),
    _bytes("key"),
    _bytes("value"),
    _text("task"),  # the task that wrote it; empty: durable
    _text("covers"),  # scope of the states whose checkpoints cover it (``keys.covers``)
    _int("mark"),  # number of the first checkpoint that covers it
    _int("gone"),  # 1: this version shows that the key is deleted
)

_OWNED = "pipeline TEXT NOT NULL REFERENCES penstock_pipelines (name)"
_GROUPED = (
    "pipeline TEXT NOT NULL, id BIGINT NOT NULL, "
    "FOREIGN KEY (pipeline, id) REFERENCES penstock_groups (pipeline, id) ON DELETE CASCADE"
)


def _first(conn: Connection) -> None:
    for statement in (
        "penstock_pipelines (name TEXT NOT NULL PRIMARY KEY, state_id TEXT NOT NULL, token TEXT, "
        "holder TEXT, holder_mark TEXT, lease_until DOUBLE PRECISION, epoch BIGINT NOT NULL, "
        "last_group BIGINT NOT NULL, last_history BIGINT NOT NULL, floors TEXT NOT NULL)",
        f"penstock_epochs ({_OWNED}, epoch BIGINT NOT NULL, lane BIGINT, last_seq BIGINT, "
        "PRIMARY KEY (pipeline, epoch))",
        f"penstock_generations ({_OWNED}, stream TEXT NOT NULL, generation BIGINT NOT NULL, "
        "PRIMARY KEY (pipeline, stream))",
        f"penstock_numbers ({_OWNED}, stream TEXT NOT NULL, number BIGINT NOT NULL, "
        "PRIMARY KEY (pipeline, stream))",
        f"penstock_groups ({_OWNED}, id BIGINT NOT NULL, done BIGINT NOT NULL, "
        "body TEXT NOT NULL, PRIMARY KEY (pipeline, id))",
        f"penstock_group_keys (key TEXT NOT NULL, {_GROUPED}, PRIMARY KEY (pipeline, key, id))",
        "penstock_loads (key TEXT NOT NULL, number BIGINT NOT NULL, committed BIGINT NOT NULL, "
        f"{_GROUPED}, PRIMARY KEY (pipeline, id, key, number))",
        f"penstock_consumed ({_OWNED}, epoch BIGINT NOT NULL, seq BIGINT NOT NULL, "
        "stream TEXT NOT NULL, PRIMARY KEY (pipeline, epoch, seq, stream))",
        f"penstock_states ({_OWNED}, scope TEXT NOT NULL, type TEXT NOT NULL, "
        "position BIGINT NOT NULL, blob TEXT NOT NULL, PRIMARY KEY (pipeline, scope))",
        f"penstock_history ({_OWNED}, id BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, "
        "run TEXT NOT NULL, scope TEXT NOT NULL, type TEXT NOT NULL, blob TEXT, "
        "PRIMARY KEY (pipeline, id))",
        f"penstock_names ({_OWNED}, kind TEXT NOT NULL, body TEXT NOT NULL, "
        "PRIMARY KEY (pipeline, kind))",
        f"penstock_schemas ({_OWNED}, stream TEXT NOT NULL, version BIGINT NOT NULL, "
        "body TEXT NOT NULL, PRIMARY KEY (pipeline, stream, version))",
        f"penstock_overrides ({_OWNED}, role TEXT NOT NULL, base_hash TEXT NOT NULL, "
        "config TEXT NOT NULL, PRIMARY KEY (pipeline, role))",
        f"penstock_runs ({_OWNED}, run TEXT NOT NULL, token TEXT NOT NULL, "
        "started_at TEXT NOT NULL, report TEXT, PRIMARY KEY (pipeline, run))",
    ):
        conn.exec_driver_sql(f"CREATE TABLE {statement}")
    conn.exec_driver_sql(
        "CREATE INDEX penstock_group_keys_id ON penstock_group_keys (pipeline, id)"
    )


def _second(conn: Connection) -> None:
    for column in ("source_protocol", "source_reference"):
        conn.exec_driver_sql(f"ALTER TABLE penstock_pipelines ADD COLUMN {column} TEXT")
    # every source that wrote a store of the first version was of this protocol
    conn.exec_driver_sql("UPDATE penstock_pipelines SET source_protocol = 'airbyte'")


def _third(conn: Connection) -> None:
    raw = "BYTEA" if conn.dialect.name == "postgresql" else "BLOB"
    for statement in (
        f"TABLE penstock_key_tasks ({_OWNED}, task TEXT NOT NULL, marks BIGINT NOT NULL, "
        "PRIMARY KEY (pipeline, task))",
        # no reference to the pipeline: tasks write here, and would wait for the row that the
        # driver's transactions lock
        "TABLE penstock_keys (pipeline TEXT NOT NULL, slot TEXT NOT NULL, version BIGINT NOT NULL, "
        f"scope TEXT NOT NULL, owner {raw} NOT NULL, key {raw} NOT NULL, value {raw} NOT NULL, "
        "task TEXT NOT NULL, covers TEXT NOT NULL, mark BIGINT NOT NULL, "
        "PRIMARY KEY (pipeline, slot, version))",
        "INDEX penstock_keys_task ON penstock_keys (pipeline, task, mark)",
    ):
        conn.exec_driver_sql(f"CREATE {statement}")


def _numbers_of_tables(conn: Connection) -> None:
    # of what an earlier version loaded nothing is known: the next load follows any number
    for column in ("table_number BIGINT", "adopts BIGINT NOT NULL DEFAULT 0"):
        conn.exec_driver_sql(f"ALTER TABLE penstock_numbers ADD COLUMN {column}")
    conn.exec_driver_sql("ALTER TABLE penstock_numbers ADD COLUMN anew BIGINT NOT NULL DEFAULT 0")


def _shares_of_epochs(conn: Connection) -> None:
    conn.exec_driver_sql("ALTER TABLE penstock_epochs ADD COLUMN shares BIGINT")


def _keys_by_path(conn: Connection) -> None:
    conn.exec_driver_sql("ALTER TABLE penstock_keys ADD COLUMN gone BIGINT NOT NULL DEFAULT 0")
    # of other scopes a key may be too long to index
    conn.exec_driver_sql(
        "CREATE INDEX penstock_keys_path ON penstock_keys (pipeline, key) WHERE scope = 'path'"
    )


MIGRATIONS: list[Callable[[Connection], None]] = [
    _first,
    _second,
    _third,
    _numbers_of_tables,
    _shares_of_epochs,
    _keys_by_path,
]


def stored_version(conn: Connection, place: str) -> int:
    """Reads the store's schema version: the number of migrations that it has; 0: a new store.
    Raises ``StateError`` (``state.newer_store``) for a store that a newer Penstock wrote."""
    if not conn.dialect.has_table(conn, SCHEMA.name):
        return 0
    version = int(conn.scalar(select(SCHEMA.c.version)) or 0)
    if version > len(MIGRATIONS):
        raise StateError(
            f"the state store {place} was written by a newer Penstock (its schema version is "
            f"{version}, this one knows up to {len(MIGRATIONS)})",
            code="state.newer_store",
            hint="update Penstock to at least the version that last ran here",
        )
    return version


def migrate(conn: Connection, place: str) -> None:
    """Runs the migrations that the store does not have yet. The caller has opened a write
    transaction and holds ``Database.lock_store``."""
    version = stored_version(conn, place)
    if version == 0 and not conn.dialect.has_table(conn, SCHEMA.name):
        conn.exec_driver_sql(f"CREATE TABLE {SCHEMA.name} (version BIGINT NOT NULL)")
        conn.execute(SCHEMA.insert().values(version=0))
    for step in MIGRATIONS[version:]:
        step(conn)
    conn.execute(update(SCHEMA).values(version=len(MIGRATIONS)))

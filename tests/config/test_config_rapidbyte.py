"""A Rapidbyte v4 file parses unchanged, with v4's defaults (reference/rapidbyte.md §4)."""

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.config.sections import Resources
from penstock.config.v4_dialect import OWN_TRANSFORMS
from penstock.errors import ConfigError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode
from penstock.transforms.open import BUILT_IN

MINIMAL = """\
version: "1.0"
pipeline: pg_to_pg
source:
  use: source-postgres
  config: {host: ${PGHOST}, port: ${PGPORT}, user: app, database: shop}
  streams:
    - name: users
      sync_mode: full_refresh
destination:
  use: dest-postgres
  config: {host: localhost}
  write_mode: append
state:
  backend: sqlite
"""

FULL = """\
version: "1.0"
pipeline: orders
source:
  use: rapidbyte/source-postgres@v1.2.0
  config: {host: db.production.internal, note: "${not a variable} ${A:-b}"}
  streams:
    - {name: orders, sync_mode: incremental, cursor_field: updated_at, columns: [id, updated_at]}
    - {name: events, sync_mode: cdc}
  permissions:
    network:
      allowed_hosts: [db.production.internal, "*.analytics.corp"]
    env:
      allowed_vars: [DATABASE_URL]
    fs:
      allowed_preopens:
  limits: {max_memory: 128 MB, timeout_seconds: 60}
transforms:
  - use: transform-sql
    config: {query: "SELECT * FROM input"}
destination:
  use: dest-postgres
  config: {schema: public}
  write_mode: upsert
  primary_key: [shop, id]
  on_data_error: dlq
  schema_evolution: {removed_column: add, new_column: fail}
  made_up: 1
state: {backend: postgres, connection: "host=db dbname=state"}
resources:
  parallelism: 4
  max_batch_bytes: 512mb
  compression: null
  autotune: {pin_copy_flush_bytes: 1048576}
"""


def test_minimal_file_has_v4_defaults() -> None:
    pipeline = parse_pipeline(MINIMAL, {"PGHOST": "db", "PGPORT": "5432"})
    assert pipeline.dialect == "rapidbyte-v4"
    assert pipeline.warnings == ()
    assert pipeline.source.config["port"] == 5432
    evolution = pipeline.destination.schema_evolution
    assert (evolution.new_column, evolution.removed_column) == ("add", "ignore")
    assert (evolution.type_change, evolution.nullability_change) == ("fail", "allow")
    assert pipeline.destination.on_data_error == "fail"
    assert pipeline.destination.metadata_columns == "none"
    assert pipeline.resources == Resources()
    assert pipeline.lanes == "auto"
    settings = pipeline.stream_settings(StreamId(None, "users"))
    assert settings is not None
    assert settings.sync_mode is SyncMode.full_refresh
    assert settings.destination_sync_mode is DestinationSyncMode.append


def test_a_postgres_state_without_a_connection_is_v4s() -> None:
    text = MINIMAL.replace("backend: sqlite", "backend: postgres")
    state = parse_pipeline(text, {"PGHOST": "db", "PGPORT": "1"}).state
    assert (state.backend, state.connection) == (
        "postgres", "host=localhost dbname=rapidbyte_state"
    )  # fmt: skip
    url = Home().state_url(state)
    assert url.startswith("postgresql+psycopg://") and "rapidbyte_state" in url
    with_connection = text.replace("postgres\n", 'postgres\n  connection: "host=db dbname=mine"\n')
    given = parse_pipeline(with_connection, {"PGHOST": "db", "PGPORT": "1"}).state
    assert given.connection == "host=db dbname=mine"


def test_resources_have_v4_defaults() -> None:
    resources = Resources()
    assert resources.max_memory is None  # v4: 256mb, read nowhere; here it would be held
    assert resources.max_batch_bytes == resources.checkpoint_interval_bytes == 64 << 20
    assert (resources.checkpoint_interval_rows, resources.checkpoint_interval_seconds) == (0, 0)
    assert (resources.max_retries, resources.max_inflight_batches) == (3, 16)
    assert resources.compression is None
    assert resources.autotune.enabled


def test_full_file() -> None:
    pipeline = parse_pipeline(FULL, {}, name="o.yml")
    assert pipeline.warnings == (
        "o.yml:27: unknown key 'made_up' in destination (a setting of the connector goes below "
        "`config`: {made_up: ...}); known keys: use, config, permissions, "
        "limits, folder, container, install, assume_manifest, namespace, prefix, acks, "
        "activate_version, checkpoint_every, on_failed_rows, nulls, parallelism, rows_per_second, "
        "attempts, backoff, stream, and 8 more",
    )
    assert pipeline.source.config["note"] == "${not a variable} ${A:-b}"
    source = pipeline.source
    assert source.permissions is not None
    assert source.permissions.configured() == {
        "network.allowed_hosts": ("db.production.internal", "*.analytics.corp"),
        "env.allowed_vars": ("DATABASE_URL",),
    }
    assert source.limits is not None
    assert source.limits.configured() == {"max_memory": 128 << 20, "timeout_seconds": 60}
    orders = pipeline.stream_settings(StreamId(None, "orders"))
    assert orders is not None
    assert orders.cursor_field == ("updated_at",)
    assert orders.destination_sync_mode is DestinationSyncMode.append_dedup
    assert orders.primary_key == (("shop",), ("id",))
    evolution = pipeline.destination.schema_evolution
    assert (evolution.new_column, evolution.removed_column) == ("fail", "ignore")
    assert evolution.type_change == "fail"
    assert pipeline.destination.on_data_error == "dlq"
    assert pipeline.lanes == 4
    assert pipeline.resources is not None
    assert pipeline.resources.max_batch_bytes == 512 << 20
    assert pipeline.resources.autotune.pin_copy_flush_bytes == 1 << 20


@pytest.mark.parametrize("change", [("source-postgres", "airbyte:source-postgres"),
                                    ("dest-postgres", "parquet"), ("  write_mode: append\n", ""),
                                    ("dest-postgres", "./dest.wasm")])  # fmt: skip
def test_a_file_that_is_not_v4s_has_penstocks_defaults(change: tuple[str, str]) -> None:
    pipeline = parse_pipeline(MINIMAL.replace(*change), {"PGHOST": "db", "PGPORT": "1"})
    assert pipeline.dialect == "penstock"
    assert pipeline.destination.schema_evolution.type_change == "coerce"
    assert pipeline.lanes == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("full_refresh", "incremental", "a.yml:8: source.streams[0]: stream 'users' is "
         "incremental and has no cursor_field"),
        ("append", "upsert", "a.yml:12: destination: write_mode upsert needs primary_key"),
        ('"1.0"', '"2.0"', "a.yml:1: version is the text '2.0'; this Penstock reads version "
         "'1.0'"),
        ("${PGHOST}", "${NOPE}", "a.yml:5: variable NOPE is not set (source.config.host)"),
    ],
)  # fmt: skip
def test_v4s_own_rules_hold(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(MINIMAL.replace(old, new), {"PGHOST": "h", "PGPORT": "1"}, name="a.yml")
    assert caught.value.problems == [message]


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_v4_reads_the_key_for_upsert_only(mode: str) -> None:
    """Its streams need not have such a column, nor does it say which rows are the same."""
    text = MINIMAL.replace("write_mode: append", f"write_mode: {mode}\n  primary_key: [nope]")
    pipeline = parse_pipeline(text, {"PGHOST": "db", "PGPORT": "1"})
    settings = pipeline.stream_settings(StreamId(None, "users"))
    assert settings is not None and settings.primary_key is None


@pytest.mark.parametrize(
    ("use", "found"),
    [
        ("transform-sql", "transform-sql"),
        ("rapidbyte/transform-sql", "transform-sql"),
        ("transform-sql@v0.1.0", "transform-sql"),
        ("rapidbyte/transform-validate@1", "transform-validate"),
        ("acme/transform-mine@1", "acme/transform-mine@1"),
    ],
)
def test_v4s_own_transforms_are_found_as_v4_finds_them(use: str, found: str) -> None:
    """By the last part of the name (reference §3.3)."""
    text = MINIMAL + f"transforms: [{{ use: {use}, config: {{}} }}]\n"
    pipeline = parse_pipeline(text, {"PGHOST": "db", "PGPORT": "1"})
    assert pipeline.dialect == "rapidbyte-v4"
    assert [t.use for t in pipeline.transforms] == [found]
    assert {*OWN_TRANSFORMS} < {*BUILT_IN}


def test_penstocks_file_may_use_rapidbytes_places() -> None:
    text = (
        "pipeline: p\nsource: {use: 'airbyte:x'}\n"
        "destination: {use: parquet, write_mode: replace, primary_key: [a, b]}\n"
    )
    settings = parse_pipeline(text, {}).stream_settings(StreamId(None, "any"))
    assert settings is not None
    assert settings.destination_sync_mode is DestinationSyncMode.overwrite
    assert settings.primary_key == (("a",), ("b",))

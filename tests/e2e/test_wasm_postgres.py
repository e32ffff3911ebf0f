"""Postgres to Postgres through WebAssembly connectors on Spark (issue 5, "Must be shown"): tokio
and tokio-postgres over host TCP at both ends, and Python at both ends.

Rows are counted and summed by Postgres itself. Building the Rust connectors takes a minute or two
the first time, and is kept; where they cannot be built their tests are skipped, with the reason.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pipelines import MASTER, NAME, Heard, Ran, assert_adds_up
from wasm_ends import APPEND, INCREMENTAL, REPLACE, UPSERT, Ends
from wasm_sites import WasmSite

from penstock.config.load import load_pipeline
from penstock.config.sections import SparkSettings
from penstock.engine.run.start import run_pipeline
from penstock.errors import PenstockError

import built  # isort: skip  (its folder is on the path now)
import rust_guests as rust  # isort: skip
from rust_guests import Server, checksum, make_rows  # isort: skip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Rust is built on even days, Python's components on odd ones.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 200_000
Move = Callable[..., Ran]
NO_NETWORK = {"permissions": {"network": {"allowed_hosts": []}}}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with rust.loopback_postgres() as running:
        yield running


@pytest.fixture
def fresh(server: Server) -> Server:
    """With empty schemas ``public`` and ``landed``."""
    server.ask("DROP SCHEMA IF EXISTS landed CASCADE")
    server.ask("DROP SCHEMA public CASCADE")
    server.ask("CREATE SCHEMA landed")
    server.ask("CREATE SCHEMA public")
    return server


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``RAPIDBYTE_CONNECTOR_DIR`` with both Rust connectors."""
    folder = tmp_path_factory.mktemp("dist")
    try:
        for role, name in (("source", "source_postgres"), ("destination", "dest_postgres")):
            (folder / f"{name}.wasm").write_bytes(rust.rust_guest(role))
    except rust.CannotBuild as e:
        pytest.skip(f"the Rust connectors cannot be built here: {e}")
    return folder


@pytest.fixture
def site(tmp_path: Path, dist: Path, shared_spark: "SparkSession") -> Ends:
    del shared_spark
    source, destination = (dist / f"{n}.wasm" for n in ("source_postgres", "dest_postgres"))
    return Ends(tmp_path / "site", binary=source.read_bytes(), to=destination.read_bytes())


@pytest.fixture
def move(site: Ends, fresh: Server) -> Move:
    """``move(defaults, stream, load_method=..., source={}, destination={})``: a table of ``public``
    into ``landed``."""

    def run(
        defaults: dict[str, str],
        table: str = "rows",
        *,
        stream: dict[str, Any] | None = None,
        source: dict[str, Any] | None = None,
        destination: dict[str, Any] | None = None,
        resources: dict[str, Any] | None = None,
        **config: Any,
    ) -> Ran:
        further: dict[str, Any] = {"resources": resources} if resources else {}
        return site.sync(
            fresh.config(),
            fresh.config(schema="landed", **config),
            defaults,
            streams=[{"name": table, **(stream or {})}],
            destination=destination,
            further=source,
            **further,
        )

    return run


def landed(server: Server, table: str = "rows") -> list[int]:
    """Its ids, sorted."""
    (found,) = server.ask(f"SELECT array_agg(id ORDER BY id) FROM landed.{table}")
    return found or []


# -- 200k rows of seven types, by COPY and by INSERT


def test_copy_and_insert_carry_every_value(
    move: Move, fresh: Server, record_property: Callable[[str, object], None]
) -> None:
    """Checksums are equal, and INSERT is no slower than a third of COPY: the best of three, as the
    machine has other work."""
    make_rows(fresh, "public.rows", 1, ROWS)
    wanted = checksum(fresh, "public.rows")
    make_rows(fresh, "public.few", 1, 10)
    assert move(APPEND, "few").exit_code == 0  # compiles, where nothing is kept yet
    best: dict[str, float] = {}
    for _ in range(3):
        for method in ("copy", "insert"):
            fresh.ask("DROP TABLE IF EXISTS landed.rows")
            ran = move(APPEND, load_method=method)
            assert ran.counts("rows") == ("complete", ROWS, ROWS, 0), ran.error
            assert checksum(fresh, "landed.rows") == wanted, method
            assert ran.stream("rows").target == "rows"
            best[method] = max(best.get(method, 0.0), ROWS / ran.report.time.load)
        if best["insert"] >= best["copy"] / 2:
            break
    for method, rate in best.items():
        record_property(f"rows/s, {method}", round(rate))
    assert best["insert"] >= best["copy"] / 3, best


# -- write modes and cursors (sections 3.2 and 6)


def test_incremental_append_brings_only_what_is_new(move: Move, fresh: Server, site: Ends) -> None:
    make_rows(fresh, "public.rows", 1, 500)
    by_id = {"cursor_field": ["id"]}
    assert move(INCREMENTAL, stream=by_id).counts("rows") == ("complete", 500, 500, 0)
    assert site.cursors() == {"rows": "500"}
    make_rows(fresh, "public.rows", 501, 530)
    second = move(INCREMENTAL, stream=by_id)
    assert second.counts("rows") == ("complete", 30, 30, 0), second.error
    third = move(INCREMENTAL, stream=by_id)
    assert third.counts("rows") == ("complete", 0, 0, 0), third.error
    assert landed(fresh) == list(range(1, 531))
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")
    assert site.cursors() == {"rows": "530"}


def test_upsert_makes_one_row_of_each_key(move: Move, fresh: Server, site: Ends) -> None:
    make_rows(fresh, "public.rows", 1, 300)
    by_time = {"cursor_field": ["at"], "primary_key": [["id"]]}
    assert move(UPSERT, stream=by_time).counts("rows") == ("complete", 300, 300, 0)
    fresh.ask("UPDATE public.rows SET label = 'new', at = at + interval '9 years' WHERE id <= 20")
    make_rows(fresh, "public.rows", 301, 310)
    second = move(UPSERT, stream=by_time)
    assert second.exit_code == 0, second.error
    assert 20 <= second.stream("rows").read <= 30
    assert site.cli("state", "reset", NAME, "--json").code == 0
    fresh.ask("INSERT INTO landed.rows (id, label) VALUES (-1, 'ours')")
    assert move(UPSERT, stream=by_time).exit_code == 0
    assert landed(fresh) == [-1, *range(1, 311)], "no key twice, and none of another's is gone"
    fresh.ask("DELETE FROM landed.rows WHERE id < 0")
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")


def test_replace_swaps_the_table(move: Move, fresh: Server) -> None:
    make_rows(fresh, "public.rows", 1, 400)
    assert move(REPLACE).counts("rows") == ("complete", 400, 400, 0)
    fresh.ask("DELETE FROM public.rows WHERE id > 50")
    assert move(REPLACE).counts("rows") == ("complete", 50, 50, 0)
    assert landed(fresh) == list(range(1, 51))
    fresh.ask("DELETE FROM public.rows")
    emptied = move(REPLACE)
    assert emptied.counts("rows") == ("complete", 0, 0, 0), emptied.error
    assert landed(fresh) == [], "an empty table replaces the old rows too"


def test_a_replace_whose_source_dies_leaves_the_old_rows(move: Move, fresh: Server) -> None:
    """Section 4.2: the destination hears an error, never the end of the stream."""
    make_rows(fresh, "public.rows", 1, 100)
    assert move(REPLACE).exit_code == 0
    fresh.ask("ALTER TABLE public.rows RENAME COLUMN label TO old_label")
    fresh.ask("CREATE VIEW public.broken AS SELECT id, 1 / (id - 60) AS label FROM public.rows")
    fresh.ask("CREATE TABLE landed.broken (id bigint, label bigint)")
    fresh.ask("INSERT INTO landed.broken VALUES (7, 7)")
    ran = move(REPLACE, "broken")
    assert ran.exit_code == 4, ran.report
    assert landed(fresh, "broken") == [7]


def test_many_tables_at_once(site: Ends, fresh: Server) -> None:
    names = [f"t{n}" for n in range(12)]
    for n, name in enumerate(names):
        make_rows(fresh, f"public.{name}", 1, 10 + n)
    ran = site.sync(
        fresh.config(), fresh.config(schema="landed"), APPEND,
        streams=[{"name": name} for name in names],
    )  # fmt: skip
    assert ran.exit_code == 0, ran.error
    for n, name in enumerate(names):
        assert ran.counts(name) == ("complete", 10 + n, 10 + n, 0)
        assert checksum(fresh, f"public.{name}") == checksum(fresh, f"landed.{name}")


# -- a v4 file, as it is (issue 5, part 16)


def v4(server: Server, mode: str, *, stream: str, resources: str = "", more: str = "") -> str:
    return f"""
version: "1.0"
pipeline: {NAME}

source:
  use: source-postgres
  config:
    host: 127.0.0.1
    port: ${{PG_PORT}}
    user: penstock
    password: ${{PG_PASSWORD}}
    database: postgres
  streams:
    - {stream}

destination:
  use: dest-postgres
  config:
    host: 127.0.0.1
    port: ${{PG_PORT}}
    user: penstock
    password: ${{PG_PASSWORD}}
    database: postgres
    schema: landed
  write_mode: {mode}
{more}
state:
  backend: sqlite

resources:
  max_memory: 256mb
  max_batch_bytes: 1mb
  checkpoint_interval_bytes: 4mb
  checkpoint_interval_rows: 1000
  checkpoint_interval_seconds: 5
  max_retries: 2
  compression: lz4
  max_inflight_batches: 4
{resources}
"""


AUTO = """
  parallelism: auto
  autotune:
    enabled: true
    pin_copy_flush_bytes: 1048576
"""


def environ(server: Server, dist: Path) -> dict[str, str]:
    return {
        "RAPIDBYTE_CONNECTOR_DIR": str(dist), "PG_PORT": str(server.port),
        "PG_PASSWORD": rust.PASSWORD,
    }  # fmt: skip


def v4_site(site: Ends, server: Server, mode: str, **parts: str) -> Path:
    path = site.folder / "v4.yaml"
    path.write_text(v4(server, mode, **parts))
    return path


def run_file(site: Ends, path: Path, server: Server, dist: Path) -> Ran:
    """In this process."""
    told = environ(server, dist)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAPIDBYTE_CONNECTOR_DIR", told["RAPIDBYTE_CONNECTOR_DIR"])
        pipeline = load_pipeline(path, env=told)
        pipeline = msgspec.structs.replace(pipeline, spark=SparkSettings(master=MASTER))
        heard = Heard()
        report = run_pipeline(pipeline, site.home, observer=heard)
    assert_adds_up(report)
    return Ran(report, heard)


def columns(server: Server, table: str, schema: str = "landed") -> dict[str, str]:
    """The columns of a table, with their types."""
    (found,) = server.ask(
        "SELECT json_object_agg(column_name, data_type) FROM information_schema.columns "
        f"WHERE table_schema = '{schema}' AND table_name = '{table}'"
    )
    return found


def test_a_v4_file_runs_as_it_is(site: Ends, fresh: Server, dist: Path) -> None:
    """By the command line: names of connectors, variables, write_mode, resources."""
    make_rows(fresh, "public.rows", 1, 2_500)
    stream = "{ name: rows, sync_mode: incremental, cursor_field: id }"
    path = v4_site(site, fresh, "append", stream=stream, resources=AUTO)
    told = environ(fresh, dist)
    planned = site.cli("plan", str(path), "--json", **told)
    assert planned.code == 0, (planned.out, planned.err)
    answer = site.cli("run", str(path), "--json", **told)
    assert answer.code == 0, (answer.out, answer.err)
    (done,) = answer.json["streams"]
    assert (done["status"], done["read"], done["committed"]) == ("complete", 2_500, 2_500)
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")
    made = columns(fresh, "rows")
    assert made == columns(fresh, "rows", "public"), "as v4 would make it: integer, not bigint"
    ours = [c for c in made if c.startswith("_")]
    assert not ours, "a v4 file adds no columns of ours"
    assert rust.PASSWORD not in answer.out + answer.err + planned.out
    assert site.files_with(rust.PASSWORD) == []


def test_a_v4_file_goes_on_with_a_table_that_v4_made(site: Ends, fresh: Server, dist: Path) -> None:
    """Names that tables of Spark refuse, and types narrower than Penstock's own."""
    columns_ = '"Order Id" integer NOT NULL, "ID" smallint, id real, "a,b" text'
    for schema in ("public", "landed"):
        fresh.ask(f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE {schema}.odd ({columns_})")
    fresh.ask("INSERT INTO public.odd SELECT i, i, i / 2.0, 'x' FROM generate_series(1, 9) AS i")
    stream = '{ name: odd, sync_mode: incremental, cursor_field: "Order Id" }'
    before = columns(fresh, "odd")
    ran = run_file(site, v4_site(site, fresh, "append", stream=stream), fresh, dist)
    assert ran.counts("odd") == ("complete", 9, 9, 0), ran.error
    assert columns(fresh, "odd") == before, "no column is added, none is altered"
    same = "SELECT string_agg(r::text, '|' ORDER BY \"Order Id\") FROM {}.odd AS r"
    assert fresh.ask(same.format("landed")) == fresh.ask(same.format("public"))


@pytest.mark.parametrize("mode", ["upsert", "replace"])
def test_a_v4_files_write_modes(site: Ends, fresh: Server, dist: Path, mode: str) -> None:
    make_rows(fresh, "public.rows", 1, 2_500)
    upsert = mode == "upsert"
    stream = "{ name: rows, sync_mode: incremental, cursor_field: id }"
    if not upsert:
        stream = "{ name: rows, sync_mode: full_refresh }"
    more = "  primary_key: [id]\n" if upsert else ""
    path = v4_site(site, fresh, mode, stream=stream, resources=AUTO, more=more)
    first = run_file(site, path, fresh, dist)
    assert first.counts("rows") == ("complete", 2_500, 2_500, 0), first.error
    make_rows(fresh, "public.rows", 2_501, 2_510)
    again = run_file(site, path, fresh, dist)
    assert again.stream("rows").read == (10 if upsert else 2_510), again.error
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")


# -- shards (section 6.1; issue 5, part 11)


def lanes(ran: Ran) -> list[str]:
    begun = [detail for name, detail in ran.heard.phases if name == "extract"]
    return sorted(d.partition(":")[0] for d in begun)


def test_a_users_pin_divides_a_stream_whose_source_says_that_it_can(
    move: Move, fresh: Server
) -> None:
    """``partitioned_read`` in its manifest."""
    make_rows(fresh, "public.rows", 1, 20_000)
    ran = move(APPEND, resources={"autotune": {"pin_parallelism": 2}})
    assert ran.counts("rows") == ("complete", 20_000, 20_000, 0), ran.error
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")
    assert lanes(ran) == ["lane 0", "lane 1"]


def test_v4s_own_rule_divides_its_postgres_source_and_no_other(
    site: Ends, fresh: Server, dist: Path, tmp_path: Path
) -> None:
    """``source-postgres``, full refresh, append, an integer ``id``: known by its manifest."""
    make_rows(fresh, "public.rows", 1, 5_000)
    path = v4_site(
        site, fresh, "append",
        stream="{ name: rows, sync_mode: full_refresh }", resources="  parallelism: 2\n",
    )  # fmt: skip
    silent = {b'"partitioned_read": true': b'"partitioned_xxxx": true'}
    named = {b"penstock/example-source-postgres": b"rapidbyte-tester/source-postgres"}

    def changed(folder: Path, words: dict[bytes, bytes]) -> Path:
        folder.mkdir()
        for file in dist.iterdir():
            content = file.read_bytes()
            for old, new in words.items():
                assert len(old) == len(new)
                content = content.replace(old, new)
            (folder / file.name).write_bytes(content)
        return folder

    ours = run_file(site, path, fresh, changed(tmp_path / "ours", silent))
    assert ours.counts("rows") == ("complete", 5_000, 5_000, 0), ours.error
    assert lanes(ours) == ["lane 0"], "it is not known to divide a stream"
    fresh.ask("DROP TABLE landed.rows")
    divided = run_file(site, path, fresh, changed(tmp_path / "theirs", {**silent, **named}))
    assert divided.counts("rows") == ("complete", 5_000, 5_000, 0), divided.error
    assert checksum(fresh, "public.rows") == checksum(fresh, "landed.rows")
    assert lanes(divided) == ["lane 0", "lane 1"]


# -- permissions (L10)


def test_l10_a_denied_host_is_not_reached(move: Move, fresh: Server) -> None:
    make_rows(fresh, "public.rows", 1, 10)
    by_id = {"stream": {"cursor_field": ["id"]}}
    ran = move(INCREMENTAL, destination=NO_NETWORK, **by_id)
    assert (ran.exit_code, ran.error["code"]) == (5, "destination.permission"), ran.error
    assert "NETWORK_DENIED" in ran.error["message"]
    assert "127.0.0.1" in ran.error["message"]
    assert fresh.ask("SELECT to_regclass('landed.rows')") == (None,)
    assert not [n for n in ran.notes if "tried again" in n], "a denied host stays denied"
    with pytest.raises(PenstockError, match="NETWORK_DENIED") as refused:
        move(INCREMENTAL, source=NO_NETWORK, **by_id)
    assert refused.value.exit_code == 4
    after = move(INCREMENTAL, **by_id)
    assert after.exit_code == 0, after.error
    assert landed(fresh) == list(range(1, 11)), "the next run brings them once"


# -- Python at both ends


def test_python_source_to_python_postgres(
    tmp_path: Path, fresh: Server, shared_spark: "SparkSession"
) -> None:
    """componentize-py components, over host TCP; the second run brings what is new."""
    here = Ends(
        tmp_path / "site",
        binary=built.python_source().read_bytes(),
        to=built.python_postgres().read_bytes(),
    )
    to = fresh.config(schema="landed")
    first = here.sync({"rows": 2_000, "batch_rows": 300}, to, UPSERT)
    assert first.counts("numbers") == ("complete", 2_000, 2_000, 0), first.error
    second = here.sync({"rows": 2_050}, to, UPSERT)
    assert second.counts("numbers") == ("complete", 50, 50, 0), second.error
    assert landed(fresh, "numbers") == list(range(1, 2_051))
    assert fresh.ask("SELECT name FROM landed.numbers WHERE id = 5") == ("N5",)
    assert here.cursors() == {"numbers": "2050"}


# -- with connectors of the other protocols, and tables


def test_postgres_to_delta(tmp_path: Path, fresh: Server, site: Ends) -> None:
    """A WebAssembly source into a table that Spark writes."""
    make_rows(fresh, "public.rows", 1, 500)
    here = WasmSite(tmp_path / "delta", "delta", binary=site.wasm.read_bytes())
    streams = [{"name": "rows", "cursor_field": ["id"]}]
    ran = here.run(config=fresh.config(), defaults=INCREMENTAL, streams=streams)
    assert ran.counts("rows") == ("complete", 500, 500, 0), ran.error
    make_rows(fresh, "public.rows", 501, 510)
    ran = here.run(config=fresh.config(), defaults=INCREMENTAL, streams=streams)
    assert ran.counts("rows") == ("complete", 10, 10, 0), ran.error
    rows = here.rows("rows", "id")
    assert [r["id"] for r in rows] == list(range(1, 511))
    (blob,) = fresh.ask("SELECT blob FROM public.rows WHERE id = 7")
    assert rows[6]["blob"] == blob


@pytest.mark.network
@pytest.mark.slow
def test_source_faker_to_a_wasm_destination(
    site: Ends, fresh: Server, connector_environments: Path
) -> None:
    """An Airbyte source, unmodified, into tokio-postgres; nested values are JSON text."""
    site.with_connectors(connector_environments)
    section = {"use": site.to, "config": fresh.config(schema="landed")}
    config = {"count": 200, "seed": 1, "always_updated": False, "parallelism": 1}
    ran = site.run(
        use="airbyte:source-faker@7.2.1", config=config, destination=section, defaults=APPEND
    )
    assert ran.status == "succeeded", ran.error
    for stream in ran.report.streams:
        (count,) = fresh.ask(f"SELECT count(DISTINCT id) FROM landed.{stream.name}")
        assert count == stream.committed == stream.read > 0, stream
    (address,) = fresh.ask("SELECT address FROM landed.users ORDER BY id LIMIT 1")
    assert set(json.loads(address)) >= {"city", "postal_code"}


@pytest.mark.network
@pytest.mark.slow
def test_a_wasm_source_to_target_jsonl(
    tmp_path: Path, fresh: Server, site: Ends, connector_environments: Path
) -> None:
    """Into a Singer target, unmodified."""
    site.with_connectors(connector_environments)
    make_rows(fresh, "public.rows", 1, 300)
    out = tmp_path / "out"
    out.mkdir()
    section = {
        "use": "singer:target-jsonl@0.1.4",
        "config": {"destination_path": str(out), "do_timestamp_file": False},
    }
    streams = [{"name": "rows", "cursor_field": ["id"]}]
    for first, last in ((1, 300), (301, 320)):
        if first > 1:
            make_rows(fresh, "public.rows", first, last)
        ran = site.run(
            config=fresh.config(), destination=section, defaults=INCREMENTAL, streams=streams
        )
        assert ran.counts("rows") == ("complete", last - first + 1, last - first + 1, 0), ran.error
    lines = [json.loads(text) for f in out.iterdir() for text in f.read_text().splitlines()]
    assert sorted(line["id"] for line in lines) == list(range(1, 321))
    assert site.cursors() == {"rows": "320"}

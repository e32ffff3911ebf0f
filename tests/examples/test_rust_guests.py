"""Issue part 15: real connectors' habits (tokio on one thread, tokio-postgres, MB-sized writes)
between two Postgres tables, through our host; both roles of the protocol, section 3 and 4.

Their build takes a minute or two the first time, and is kept; without cargo or the target they are
skipped, with the reason."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import rust_guests as rust
from rust_guests import Server, checksum, context, ended, make_rows, pump, stage

from penstock.config.sections import Limits, NetworkPermissions, Permissions
from penstock.protocols.rapidbyte.declared.manifest import (
    MANIFEST_SECTION,
    config_schema,
    mode_problems,
    read_manifest,
    role_problems,
)
from penstock.protocols.rapidbyte.guest import probe, stream_run
from penstock.protocols.rapidbyte.guest.events import (
    CheckpointCall,
    ComponentLog,
    Frame,
    StageEvent,
)
from penstock.protocols.rapidbyte.guest.stage import QueueBounds
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.messages import (
    EvolutionPolicies,
    Policies,
    StreamContext,
    StreamLimits,
)
from penstock.protocols.rapidbyte.wire.wasm_binary import custom_sections

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    try:
        rust.rust_guest("source")
    except rust.CannotBuild as e:
        pytest.skip(f"the Rust connectors cannot be built here: {e}")


@pytest.fixture(scope="module")
def server(built: None) -> Iterator[Server]:
    with rust.loopback_postgres() as running:
        running.ask("CREATE SCHEMA landed")
        yield running


def read(server: Server, asked: StreamContext, **config: Any) -> list[StageEvent]:
    return list(stream_run.read(stage("source", server.config(**config)), asked))


def write(server: Server, asked: StreamContext, feed: Any, **config: Any) -> list[StageEvent]:
    config = {"schema": "landed", **config}
    return list(stream_run.write(stage("destination", server.config(**config)), asked, feed))


def moved(
    server: Server, asked: StreamContext, **config: Any
) -> tuple[list[StageEvent], list[StageEvent]]:
    """From ``public`` into ``landed``; neither may fail."""
    to = stage("destination", server.config(schema="landed", **config))
    said = pump(stage("source", server.config()), to, asked)
    for told in said:
        assert ended(told).error is None, ended(told).error
    return said


def marks(told: list[StageEvent]) -> list[CheckpointCall]:
    return [t for t in told if isinstance(t, CheckpointCall)]


def table(rows: dict[str, Any]) -> bytes:
    return bytes(frame_of(pa.RecordBatch.from_pydict(rows)))


def rows_of(told: list[StageEvent]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for item in told:
        if isinstance(item, Frame):
            with pa.ipc.open_stream(pa.py_buffer(item.data)) as reader:
                found += reader.read_all().to_pylist()
    return found


# -- what they say of themselves


def test_manifest_and_schema_lie_in_the_inner_module():
    for role, modes in (("source", ["full_refresh", "incremental"]), ("destination", [])):
        binary = rust.rust_guest(role)
        assert MANIFEST_SECTION in {name for name, _ in custom_sections(binary)}
        assert MANIFEST_SECTION not in {name for name, _ in custom_sections(binary, depth=0)}
        found = read_manifest(binary).manifest
        assert found is not None and role_problems(found, role) == []  # type: ignore[arg-type]
        assert mode_problems(found, role, sync_modes=modes) == []  # type: ignore[arg-type]
        assert found.permissions.network.allow_runtime_config_domains
        schema = config_schema(found)
        assert schema is not None and schema["properties"]["password"]["x-secret"] is True
    for mode in ("append", "replace", "upsert"):
        found = read_manifest(rust.rust_guest("destination")).manifest
        assert found is not None and mode_problems(found, "destination", write_mode=mode) == []


def test_check_says_whether_the_server_answers(server: Server):
    for role, ask in (("source", probe.check), ("destination", probe.check)):
        assert ask(stage(role, server.config()), lambda _: None).status == "success"
        report = ask(stage(role, server.config(password="wrong")), lambda _: None)
        assert report.status == "failed" and "28P01" in report.message
        assert "wrong" not in report.message


def test_discover_tells_tables_columns_and_keys(server: Server):
    server.ask("CREATE TABLE public.described (a int2 NOT NULL, b int4, c int8, d real, e float8, "
               "f bool, g varchar(9), h timestamptz, i date, j bytea, k numeric, l jsonb, m uuid, "
               "PRIMARY KEY (c, a))")  # fmt: skip
    catalog = probe.discover(stage("source", server.config()), lambda _: None)
    (found,) = (s for s in catalog.streams if s.name == "described")
    assert [c.data_type for c in found.schema] == [
        "Int16", "Int32", "Int64", "Float32", "Float64", "Boolean", "Utf8", "TimestampMicros",
        "Date32", "Binary", "Utf8", "Utf8", "Utf8",
    ]  # fmt: skip
    assert [c.name for c in found.schema if not c.nullable] == ["a", "c"]
    assert found.supported_sync_modes == ["full_refresh", "incremental"]
    assert found.source_defined_primary_key == ["c", "a"]


# -- everything arrives


def test_200k_rows_of_seven_types_by_copy_and_by_insert(server: Server) -> None:
    """Checksums equal. How fast each is: ``bench/rust_guests.py``."""
    make_rows(server, "public.many", 1, 200_000)
    wanted = checksum(server, "public.many")
    for method in ("copy", "insert"):
        read_, written = moved(server, context("many", mode="replace"), load_method=method)
        assert checksum(server, "landed.many") == wanted
        for told, count in ((read_, "records_read"), (written, "records_written")):
            summary = ended(told).summary
            assert summary is not None and summary.counts[count] == 200_000


def test_a_large_flush_in_little_memory(server: Server):
    """All that is gathered is offered to the socket at once, and what it leaves again and again."""
    server.ask("CREATE TABLE IF NOT EXISTS public.bulky AS SELECT i AS id, repeat(md5(i::text), 9) "
               "AS label FROM generate_series(1, 60000) AS i")  # fmt: skip
    asked = context("bulky", copy_flush_bytes_override=8 << 20)
    few = Limits(max_memory=64 << 20)
    to = stage("destination", server.config(schema="landed"), limits=few)
    for told in pump(stage("source", server.config(), limits=few), to, asked):
        assert ended(told).error is None, ended(told).error
    total = "SELECT count(*), sum(hashtextextended(label, id)::numeric) FROM {}.bulky"
    assert server.ask(total.format("landed")) == server.ask(total.format("public"))


ODD = """
    SELECT * FROM (VALUES
      (1, true, 1::int2, 1.5::float4, 'NaN'::float8, 'é', timestamp '0044-03-15 BC',
       timestamptz '2024-02-29 12:00:00.000001+05', date '0001-01-01', '\\x00ff'::bytea,
       12345678901234567890.12345::numeric, '{"b": [1, null], "a": "é"}'::jsonb,
       'e7f1b2a0-0000-4000-8000-000000000001'::uuid),
      (2, false, (-32768)::int2, 'Infinity'::float4, -0.0::float8, '', timestamp 'infinity',
       timestamptz '-infinity', date 'infinity', ''::bytea, 'NaN'::numeric, 'null'::jsonb, NULL),
      (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
      (-9, true, 0::int2, 1e-38::float4, 5e-324::float8, repeat('x', 100000), timestamp 'epoch',
       timestamptz 'epoch', date '5874897-12-31', decode(repeat('ab', 70000), 'hex'), 0,
       '[]'::jsonb, NULL)
    ) AS v (id, flag, small, single, double, label, at, zoned, born, blob, exact, doc, uid)"""


@pytest.mark.parametrize("method", ["copy", "insert"])
def test_odd_values_and_every_type_arrive_unchanged(server: Server, method: str):
    server.ask(f"DROP TABLE IF EXISTS public.odd; CREATE TABLE public.odd AS {ODD}")
    moved(server, context("odd", mode="replace"), load_method=method)
    same = "id, flag, small, single, double, label, at, zoned::timestamp, born, blob"
    for columns in (f"{same}, exact::text, doc::text, uid::text", "count(*)"):
        assert server.ask(
            f"SELECT string_agg(r::text, '|' ORDER BY r::text) FROM (SELECT {columns} FROM "
            "public.odd) AS r"
        ) == server.ask(
            "SELECT string_agg(r::text, '|' ORDER BY r::text) FROM (SELECT "
            f"{columns.replace('::timestamp', '')} FROM landed.odd) AS r"
        )


@pytest.mark.parametrize("method", ["copy", "insert"])
def test_an_existing_table_keeps_its_own_types(server: Server, method: str):
    server.ask("DROP TABLE IF EXISTS landed.own; CREATE TABLE landed.own (id bigint, n bigint, "
               "ratio float8, label varchar(5), doc jsonb, at timestamptz, more text)")  # fmt: skip
    rows = {
        "id": pa.array([1, 2], pa.int32()), "n": pa.array([7, None], pa.int16()),
        "ratio": pa.array([0.5, None], pa.float32()), "label": ["abc", None],
        "doc": ['{"a": 1}', None], "at": pa.array([0, None], pa.timestamp("us")),
        "zoned": pa.array([0, None], pa.timestamp("us", tz="Europe/Vienna")),
    }  # fmt: skip
    assert ended(write(server, context("own"), [table(rows)], load_method=method)).error is None
    assert server.ask(
        "SELECT id, n, ratio, label, doc, extract(epoch FROM at)::int, more, "
        "extract(epoch FROM zoned)::int, pg_typeof(zoned)::text FROM landed.own WHERE id = 1"
    ) == (1, 7, 0.5, "abc", {"a": 1}, 0, None, 0, "timestamp with time zone")
    long = write(server, context("own"), [table({"label": ["too long"]})], load_method=method)
    fault = ended(long).fault
    assert fault is not None and (fault.category, fault.retryable) == ("data", False)
    wrong = ended(write(server, context("own"), [table({"doc": [1]})], load_method=method)).fault
    assert wrong is not None and (wrong.category, wrong.code) == ("schema", "TYPE_MISMATCH")


def test_frames_are_complete_small_streams_within_the_limit(server: Server):
    make_rows(server, "public.limited", 1, 20_000)
    limits = StreamLimits(max_batch_bytes=300_000)
    told = read(server, context("limited", limits=limits))
    sizes = [len(t.data) for t in told if isinstance(t, Frame)]
    assert len(sizes) > 5 and max(sizes) <= 300_000
    assert sorted(r["id"] for r in rows_of(told)) == list(range(1, 20_001))


def test_columns_and_a_cap_are_asked_of_the_server(server: Server):
    server.ask("CREATE TABLE public.wide AS SELECT i AS id, i * 2 AS twice, 'x' AS rest "
               "FROM generate_series(1, 50) AS i")  # fmt: skip
    limits = StreamLimits(max_records=7)
    told = read(server, context("wide", limits=limits, selected_columns=["twice", "id"]))
    assert rows_of(told) == [{"id": i, "twice": 2 * i} for i in range(1, 8)]
    unknown = ended(read(server, context("wide", selected_columns=["gone"]))).fault
    assert unknown is not None and unknown.code == "COLUMN_NOT_FOUND"


# -- incremental


@pytest.mark.parametrize("cursor, since", [
    ("id", "30"), ("at", "2024-01-31 00:00:00"), ("exact", "30.50"),
    ("zoned", "2024-01-31 00:00:00+00"),
])  # fmt: skip
def test_a_second_run_reads_only_what_is_new(server: Server, cursor: str, since: str):
    """Numbers as numbers: 100 comes after 30, which as text it would not."""
    server.ask(
        "DROP TABLE IF EXISTS public.grows; CREATE TABLE public.grows (id int, at timestamp, "
        "zoned timestamptz, exact numeric(9,2)); DROP TABLE IF EXISTS landed.grows"
    )
    add = (
        "INSERT INTO public.grows SELECT i, timestamp '2024-01-01' + i * interval '1 day', "
        "timestamptz '2024-01-01 00:00+00' + i * interval '1 day', i + 0.5 "
        "FROM generate_series({}) AS i"
    )
    server.ask(add.format("30, 1, -1"))
    server.ask("INSERT INTO public.grows VALUES (NULL, NULL, NULL, NULL)")
    read_, _ = moved(server, context("grows", cursor=cursor))
    (mark,) = marks(read_)
    assert mark.payload is not None and mark.payload.cursor_value is not None
    assert (mark.kind, mark.payload.id, mark.payload.cursor_field) == (0, 0, cursor)
    assert mark.payload.cursor_value.text() == since
    server.ask(add.format("98, 102"))
    read_, _ = moved(server, context("grows", cursor=cursor, since=since))
    summary = ended(read_).summary
    assert summary is not None and summary.counts["records_read"] == 5
    assert server.ask("SELECT count(*), count(DISTINCT id) FROM landed.grows") == (36, 35)
    last = marks(read_)[0].payload
    assert last is not None and last.cursor_value is not None
    read_, _ = moved(server, context("grows", cursor=cursor, since=last.cursor_value.text()))
    assert marks(read_) == [] and ended(read_).frames_out == 0


def test_shards_are_disjoint_and_whole_also_without_an_id(server: Server):
    server.ask("CREATE TABLE public.parts AS SELECT i AS id FROM generate_series(-50, 50) AS i "
               "UNION ALL SELECT NULL")  # fmt: skip
    told: list[list[StageEvent]] = [[] for _ in range(3)]

    def move(index: int) -> None:
        asked = context("parts", partition_count=3, partition_index=index)
        to = stage("destination", server.config(schema="landed"))
        said, written = pump(stage("source", server.config()), to, asked)
        told[index] = [*said, *written]
        assert ended(said).error is None and ended(written).error is None, ended(written).error

    workers = [threading.Thread(target=move, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(told)
    assert server.ask("SELECT count(*), count(DISTINCT id), sum(id) FROM landed.parts") == (
        102, 101, 0,
    )  # fmt: skip
    server.ask("CREATE TABLE public.keyless AS SELECT 'a' AS id")
    parts = [
        ended(read(server, context("keyless", partition_count=2, partition_index=index)))
        for index in range(2)
    ]
    assert [p.summary and p.summary.counts["records_read"] for p in parts] == [1, 0]


# -- write modes


def test_append_twice_is_there_twice(server: Server):
    make_rows(server, "public.twice", 1, 1000)
    for _ in range(2):
        moved(server, context("twice"))
    assert server.ask("SELECT count(*), count(DISTINCT id) FROM landed.twice") == (2000, 1000)


@pytest.mark.parametrize("method", ["copy", "insert"])
def test_append_commits_at_each_interval_and_says_so(server: Server, method: str):
    make_rows(server, f"public.often_{method}", 1, 30_000)
    limits = StreamLimits(max_batch_bytes=1_000_000, checkpoint_interval_bytes=1_000_000)
    _, told = moved(server, context(f"often_{method}", limits=limits), load_method=method)
    found = marks(told)
    payloads = [m.payload for m in found]
    assert [p.id for p in payloads if p] == list(range(1, len(found) + 1)) and len(found) >= 3
    assert all(p and p.kind == "dest" and m.kind == 1 for m, p in zip(found, payloads, strict=True))
    assert [m.frames for m in found] == sorted({m.frames for m in found})
    last = payloads[-1]
    assert last is not None and last.records_processed == 30_000
    summary = ended(told).summary
    assert summary is not None and summary.counts["checkpoint_count"] == len(found)


@pytest.mark.parametrize("method", ["copy", "insert"])
def test_replace_leaves_the_new_rows_only_also_where_there_are_none(server: Server, method: str):
    new = context("swapped", mode="replace")
    for rows in ([1, 2, 3], [9]):
        told = write(server, new, [table({"id": rows})], load_method=method)
        assert ended(told).error is None and len(marks(told)) == 1
        assert server.ask("SELECT array_agg(id ORDER BY id) FROM landed.swapped") == (rows,)
    assert ended(write(server, new, [], load_method=method)).error is None
    assert server.ask("SELECT count(*) FROM landed.swapped") == (0,)
    assert ended(write(server, context("never", mode="replace"), [])).error is None


@pytest.mark.parametrize("method", ["copy", "insert"])
def test_upsert_takes_the_last_row_of_each_key(server: Server, method: str):
    server.ask("DROP TABLE IF EXISTS landed.merged")
    asked = context("merged", mode="upsert", keys=["id"])
    feeds: list[list[dict[str, Any]]] = [
        [{"id": [1, 2, 2], "label": ["a", "old", "b"]}],
        [{"id": [2], "label": ["newer"]}, {"id": [3, 2], "label": ["c", "newest"]}],
    ]
    for feed in feeds:
        told = write(server, asked, [table(rows) for rows in feed], load_method=method)
        assert ended(told).error is None, ended(told).error
        assert [m.payload.id for m in marks(told) if m.payload] == [1]
    assert server.ask("SELECT string_agg(id || label, ',' ORDER BY id) FROM landed.merged") == (
        "1a,2newest,3c",
    )
    keyless = ended(write(server, context("merged", mode="upsert", keys=[]), []))
    assert keyless.fault is not None and keyless.fault.code == "NO_PRIMARY_KEY"


def test_new_columns_follow_the_policy_also_in_the_middle_of_a_stream(server: Server):
    feed = [table({"id": [1]}), table({"id": [2], "more": ["x"]}), table({"id": [3]})]
    for mode in ("append", "replace"):
        assert ended(write(server, context(f"wider_{mode}", mode=mode), feed)).error is None
        assert server.ask(f"SELECT count(*), max(more) FROM landed.wider_{mode}") == (3, "x")

    def policy(new_column: Any) -> Policies:
        return Policies(schema_evolution=EvolutionPolicies(new_column=new_column))

    feed = [table({"id": [4], "extra": ["y"]})]
    fails = ended(write(server, context("wider_append", policies=policy("fail")), feed)).fault
    assert fails is not None and (fails.category, fails.code) == ("schema", "NEW_COLUMN")
    told = write(server, context("wider_append", policies=policy("ignore")), feed)
    assert ended(told).error is None
    assert server.ask("SELECT to_jsonb(w) FROM landed.wider_append AS w WHERE id = 4") == (
        {"id": 4, "more": None},
    )


def test_the_flush_size_is_the_pin_or_the_override_or_the_default(server: Server):
    def said(asked: StreamContext, **config: Any) -> int:
        told = write(server, asked, [table({"id": list(range(50))})], **config)
        assert ended(told).error is None
        lines = [
            t.message
            for t in told
            if isinstance(t, ComponentLog) and "bytes at a time" in t.message
        ]
        return int(lines[0].split(", ")[1].split()[0])

    assert said(context("flushed")) == 1 << 20
    assert said(context("flushed"), copy_flush_bytes=100) == 100
    given = context("flushed", copy_flush_bytes_override=1)  # each row on its own
    assert said(given, copy_flush_bytes=100) == 1
    assert server.ask("SELECT count(*) FROM landed.flushed") == (150,)


# -- failures


def breaking(whole: int) -> Iterator[bytes]:
    for n in range(whole):
        yield table({"id": list(range(n * 1000, n * 1000 + 1000))})
    raise OSError("the stage before it broke")


@pytest.mark.parametrize("method", ["copy", "insert"])
@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
def test_a_feed_that_fails_is_rolled_back(server: Server, mode: str, method: str):
    """Never an end of stream: what was there stays, and only that (defect 1 of the original)."""
    name = f"kept_{mode}_{method}"
    asked = context(name, mode=mode, keys=["id"] if mode == "upsert" else None)
    assert ended(write(server, asked, [table({"id": [-1]})], load_method=method)).error is None
    last = ended(write(server, asked, breaking(5), load_method=method))
    assert last.error is not None and last.host_fault is not None and last.fault is not None
    assert last.host_fault.code == last.fault.code == "UPSTREAM_FAILED"
    assert "the stage before it broke" in str(last.error)
    assert server.ask(f"SELECT array_agg(id) FROM landed.{name}") == ([-1],)
    staging = f"SELECT to_regclass('landed.{name}__rb_staging')"
    assert server.ask(staging) == (None,)
    assert server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rapidbyte' "
                      "AND state LIKE 'idle in%'") == (0,)  # fmt: skip


def test_what_an_interval_committed_stays_and_is_what_the_checkpoints_say(server: Server):
    limits = StreamLimits(checkpoint_interval_bytes=1)
    told = write(server, context("partly", limits=limits), breaking(3))
    assert ended(told).error is not None
    last = marks(told)[-1].payload
    assert last is not None and last.records_processed == 3000
    assert server.ask("SELECT count(*) FROM landed.partly") == (3000,)


def test_a_denied_host_is_what_is_shown(server: Server):
    allow = Permissions(network=NetworkPermissions(allowed_hosts=("elsewhere.example",)))
    for role in ("source", "destination"):
        narrowed = stage(role, server.config(), allow=allow)
        asked = context("many")
        run = (
            stream_run.read(narrowed, asked)
            if role == "source"
            else stream_run.write(narrowed, asked, [])
        )
        last = ended(list(run))
        assert last.host_fault is not None and last.host_fault.code == "NETWORK_DENIED"
        assert last.fault is not None and last.fault.category == "permission"
        assert last.error is not None and "allowed_hosts" in (last.error.hint or "")


def test_faults_keep_their_category(server: Server):
    gone = ended(read(server, context("no such table"))).fault
    assert gone is not None and (gone.category, gone.code) == ("config", "STREAM_NOT_FOUND")
    shut = ended(read(server, context("many"), password="no")).fault
    assert shut is not None and (shut.category, shut.retryable) == ("auth", False)
    closed = ended(read(server, context("many"), port=1)).fault
    assert closed is not None and (closed.category, closed.code) == (
        "transient_network", "TCP_CONNECT_FAILED",
    )  # fmt: skip
    assert closed.retryable and closed.safe_to_retry
    config = server.config()
    del config["user"]
    broken = ended(list(stream_run.read(stage("source", config), context("many")))).fault
    assert broken is not None and broken.code == "INVALID_CONFIG"


def test_a_server_that_goes_away_in_the_middle_is_no_end_of_stream(server: Server):
    make_rows(server, "public.torn", 1, 200_000)
    held = replace(stage("source", server.config()), pressure=QueueBounds(outbox_bytes=1 << 20))
    told = stream_run.read(held, context("torn"))
    seen: list[StageEvent] = []
    for item in told:
        if isinstance(item, Frame) and not any(isinstance(t, Frame) for t in seen):
            assert server.ask(
                "SELECT bool_and(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name = 'rapidbyte' AND state = 'active'"
            ) == (True,)
        seen.append(item)
    last = ended(seen)
    assert last.error is not None and last.fault is not None
    assert last.fault.category in ("transient_db", "transient_network") and last.fault.retryable


def test_names_are_quoted_and_literals_escaped(server: Server):
    server.ask('CREATE TABLE public."Od""d; --" (id text, "sel""ect" int)')
    server.ask("INSERT INTO public.\"Od\"\"d; --\" VALUES ('a''b', 1), ('b\\c', 2), ('z', 3)")
    moved(server, context('Od"d; --', cursor="id", since="a''; DROP TABLE x; --"))
    assert server.ask('SELECT count(*), sum("sel""ect") FROM landed."Od""d; --"') == (3, 6)
    read_, _ = moved(server, context('Od"d; --', cursor="id", since="b\\c"))
    assert [m.payload.cursor_value.text() for m in marks(read_)  # type: ignore[union-attr]
            ] == ["z"]  # fmt: skip

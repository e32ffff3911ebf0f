"""Built-in transforms in a lane: what becomes of rejects and counts (L8), and of a stream whose
batch fails (L1, L7); what a pipeline may say of them (L10), and how its faults are told."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from playing import Apply, none, playing

from penstock.codec.columns import Columns
from penstock.config.load import parse_pipeline
from penstock.connectors.launch import Launch
from penstock.engine.log.memory import MemoryLog
from penstock.engine.log.rejects import decode_rejects
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.transform_endpoint import transform_jobs, transforms_of
from penstock.engine.plan.unsupported import not_enforced, permissions_asked, refused
from penstock.engine.specs.lane import LaneJob, LaneStream, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.sealer import Sealer
from penstock.engine.worker.transforms.stages import Transforming
from penstock.errors import ConfigError
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import (
    Activate,
    Batch,
    ConnectorExited,
    Error,
    Event,
    Reject,
    Schema,
    State,
    Status,
    StreamStatus,
)
from penstock.model.segments import WriteDisposition
from penstock.model.state import StateScope, StateType
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.failures import failed
from penstock.protocols.transforming import Given, TransformedRows, TransformProgress
from penstock.protocols.writing import END
from penstock.runtimes.contract import Component
from penstock.tables.formats import open_table
from penstock.transforms.chain import Chain, plan_chain
from penstock.transforms.contract import TransformJob

A, B = StreamId(None, "a"), StreamId(None, "b")
INTEGER, TEXT = DataType(Kind.integer), DataType(Kind.string)
IDS = RowSchema((Field("id", "id", INTEGER),))
SCHEMA = RowSchema(
    (
        Field("id", "id", INTEGER),
        Field("age", "Age", INTEGER),
        Field("tags", "tags", DataType(Kind.array, item=TEXT)),
    )
)


def sql(query: str, at: int = 0) -> TransformJob:
    return TransformJob(use="transform-sql", config={"query": query}, where=f"transforms[{at}]")


def validate(rule: dict[str, Any], at: int = 0, how: Any = "dlq") -> TransformJob:
    return TransformJob(
        use="transform-validate",
        config={"rules": [rule]},
        where=f"transforms[{at}]",
        on_failure=how,
    )


def not_null(column: str, at: int = 0) -> TransformJob:
    return validate({"assert_not_null": column}, at)


def component() -> TransformJob:
    launch = Launch(
        protocol="rapidbyte", role="transform", component=Component(path="x", digest="y")
    )
    return TransformJob(
        use="./x.wasm",
        config={},
        where="transforms[0]",
        place="transform:0",
        launch=msgspec.to_builtins(launch),
    )


@dataclass
class Went:
    """What a lane made of its source's events, and sealed."""

    events: list[Event] = field(default_factory=list[Event])
    read: int = 0
    rejected: int = 0
    filtered: int = 0
    lines: list[bytes] = field(default_factory=list[bytes])
    rows: int = 0

    @property
    def committed(self) -> int:
        return self.read - self.rejected - self.filtered

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return self.read, self.committed, self.rejected, self.filtered

    def told(self) -> list[str]:
        """States, ends and errors, in order."""
        return [
            e.blob if isinstance(e, State)
            else f"{e.stream} {e.status.value}" if isinstance(e, StreamStatus)
            else f"error of {e.stream}" if isinstance(e, Error)
            else f"exit {e.code}"
            for e in self.events if isinstance(e, (State, StreamStatus, Error, ConnectorExited))
        ]  # fmt: skip


def sync(
    chain: list[TransformJob], events: list[Event], *, key: bool = False, how: str = "dlq",
    streams: tuple[StreamId, ...] = (A, B), open: bool = False, transform: Apply | None = None,
) -> Went:  # fmt: skip
    mode = DestinationSyncMode.append_dedup if key else DestinationSyncMode.append

    def stream(name: StreamId) -> StreamJob:
        configured = ConfiguredStream(
            stream=Stream(id=name, json_schema={}),
            sync_mode=SyncMode.full_refresh,
            destination_sync_mode=mode,
            primary_key=(("id",),) if key else (),
        )
        plan = plan_chain(chain, SCHEMA, configured)
        lane = LaneStream(
            stream=name,
            disposition=WriteDisposition(mode=mode),
            schema_version=1,
            generation=0,
            fills_generation=False,
        )
        return StreamJob(
            configured=configured,
            lane=lane,
            schema=plan.schema,
            given=SCHEMA,
            made=plan.made,
            key=configured.primary_key,
        )

    job = LaneJob(
        run="r",
        lane=0,
        epoch=1,
        log_root="",
        protocol="airbyte",
        launch={},
        config={},
        config_hash="",
        streams=tuple(map(stream, streams)),
        transforms=tuple(chain),
        open=open,
    )
    known, log, went = StreamDecoders(job), MemoryLog(), Went()
    connect = none if transform is None else playing(transform)
    sealer = Sealer(
        log,
        epoch=1,
        lane=0,
        streams=[s.lane for s in job.streams],
        decode=known.decode,
        clock=lambda: 0.0,
        on_data_error=how,
    )
    for event in Transforming(job, known, connect).events(iter(events)):
        went.events.append(event)
        match event:
            case Batch():
                sealer.batch(event)
            case Reject():
                sealer.reject(event)
            case State():
                sealer.state(event)
            case _:
                pass
    sealer.finish(clean=True)
    for segment in log.segments():
        for part in segment.slices:
            assert part.read >= part.rejected + part.filtered
            went.read += part.read
            went.rejected += part.rejected
            went.filtered += part.filtered
            went.rows += part.rows
    named = {name for s in log.segments() for name in s.rejects}
    assert named == set(log.rejects), "every line is sealed"
    lines = [line for raw in log.rejects.values() for line in decode_rejects(raw)]
    went.lines = [line.body.encode() for line in lines]
    return went


def batch(*bodies: bytes, stream: StreamId = A) -> Batch:
    return Batch(stream, list(bodies), [1000] * len(bodies), size=sum(map(len, bodies)))


def person(n: int, **more: Any) -> bytes:
    return msgspec.json.encode({"id": n, "Age": n, "tags": ["x", "y"], **more})


def state(blob: str, stream: StreamId | None = A) -> State:
    kind = StateType.stream if stream is not None else StateType.global_
    return State(StateScope(kind, stream), blob)


def done(stream: StreamId = A) -> StreamStatus:
    return StreamStatus(stream, Status.complete)


# -- the bytes of rejects


def test_l8_reject_of_a_rule_holds_the_record_as_it_came() -> None:
    """The value that did not fit is NULL by then (L9), and a property the schema lacks is gone."""
    bad = b'{"id": 2, "Age":"abc-original","extra":"kept?"}'
    went = sync([not_null("age")], [batch(person(1), b"[1]", bad, person(3))])
    assert went.lines == [b"[1]", bad]
    assert went.counts == (4, 2, 2, 0)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id * 10 AS id, age AS years FROM input WHERE id > 1 ORDER BY id DESC",
        "SELECT id * 10 AS id, age AS years FROM input WHERE id > 1 LIMIT 3",
    ],
)
def test_l8_reject_behind_a_query_that_keeps_rows_holds_the_record(query: str) -> None:
    bad = b'{"id":3,"Age":null,"what":"else"}'
    went = sync([sql(query), not_null("years", 1)], [batch(person(1), person(2), bad, person(4))])
    assert went.lines == [bad]
    assert went.counts == (4, 2, 1, 1)


def test_l8_reject_of_a_row_of_a_frame_holds_all_its_columns_as_they_came() -> None:
    frame = pa.table({"id": [1, 2], "Age": [5, None], "more": ["a", "b"]})
    went = sync(
        [sql("SELECT id, age FROM input"), not_null("age", 1)], [Batch(A, Columns(frame), [1, 1])]
    )
    assert went.lines == [b'{"id":2,"Age":null,"more":"b"}']


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT id, unnest(tags) AS tag FROM input", b'{"id":2,"tag":null}'),
        ("SELECT max(id) AS id, age AS tag FROM input GROUP BY age", b'{"id":2,"tag":null}'),
        ("SELECT DISTINCT id, age AS tag FROM input", b'{"id":2,"tag":null}'),
    ],
)
def test_l8_reject_of_a_row_of_unknown_origin_holds_that_row(query: str, wanted: bytes) -> None:
    given = batch(person(1), b'{"id":2,"Age":null,"tags":["z",null]}')
    went = sync([sql(query), not_null("tag", 1)], [given])
    assert went.lines == [wanted]
    assert went.read == 2 and went.rejected == 1


def test_l8_record_whose_key_a_query_makes_null_is_rejected_as_it_came() -> None:
    query = "SELECT nullif(id, 2) AS id, age FROM input"
    raw = person(2, extra=1)
    went = sync([sql(query)], [batch(person(1), raw, person(3))], key=True)
    assert went.lines == [raw] and went.counts == (3, 2, 1, 0) and went.rows == 2
    (reject,) = [e for e in went.events if isinstance(e, Reject)]
    assert reject.reason == "primary key is null" and reject.field == "id"


def test_l9_a_query_can_fill_in_a_key() -> None:
    """What is rejected is a row without a key, behind all transforms."""
    query = "SELECT coalesce(id, 0) AS id, age FROM input"
    went = sync([sql(query)], [batch(person(1), b'{"Age":4}')], key=True)
    assert went.counts == (2, 2, 0, 0) and went.rows == 2 and went.lines == []


def test_key_that_no_column_is_any_more_rejects_nothing() -> None:
    went = sync([sql("SELECT age FROM input")], [batch(person(1), person(2))], key=True)
    assert went.counts == (2, 2, 0, 0)


# -- the account


def test_l8_rows_doubled_and_rejected_count_no_more_records_than_were_read() -> None:
    chain = [sql("SELECT id, unnest(tags) AS tag FROM input"),
             validate({"assert_range": {"field": "id", "max": 0}}, 1)]  # fmt: skip
    went = sync(
        chain, [batch(*map(person, (1, 2, 3))), batch(person(0)), done(), ConnectorExited(0)]
    )
    assert len(went.lines) == 6 and went.counts == (4, 1, 3, 0) and went.rows == 2


def test_l8_rows_that_are_rejected_after_a_group_leave_the_other_records_out() -> None:
    """Nothing of them is in the table."""
    chain = [sql("SELECT count(*) AS n FROM input"),
             validate({"assert_range": {"field": "n", "max": 0}}, 1)]  # fmt: skip
    went = sync(chain, [batch(*map(person, range(10)))])
    assert went.counts == (10, 0, 1, 9) and went.lines == [b'{"n":10}']


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT count(*) AS n FROM input HAVING count(*) > 99", (10, 0, 0, 10)),
        ("SELECT count(*) AS n FROM input WHERE id > 5", (10, 10, 0, 0)),
        ("SELECT id FROM input LIMIT 3", (10, 3, 0, 7)),
    ],
)
def test_l8_records_of_which_nothing_comes_out_are_filtered(
    query: str, wanted: tuple[int, ...]
) -> None:
    assert sync([sql(query)], [batch(*map(person, range(10)))]).counts == wanted


def test_l8_what_was_left_out_before_a_group_is_known_to_be() -> None:
    chain = [
        sql("SELECT id, age FROM input WHERE id < 6"),
        validate({"assert_range": {"field": "age", "min": 1}}, 1),
        sql("SELECT count(*) AS n FROM input", 2),
    ]
    went = sync(chain, [batch(*map(person, range(10)))])
    assert went.counts == (10, 5, 1, 4) and went.lines == [person(0)]


@pytest.mark.parametrize("how", ["dlq", "skip"])
def test_l8_account_holds_whatever_becomes_of_bad_rows(how: Any) -> None:
    chain = [validate({"assert_range": {"field": "id", "max": 6}}, 0, how),
             sql("SELECT nullif(id, 2) AS id FROM input", 1)]  # fmt: skip
    given: list[Event] = [batch(*map(person, range(10))), state("s"), batch(b"null", person(1))]
    went = sync(chain, given, key=True, how=how)
    lost = (5, 0) if how == "dlq" else (0, 5)
    assert went.counts == (12, 7, *lost) and went.rows == 7
    assert len(went.lines) == lost[0]


def doubling(request: Any, feed: Iterator[Any], keys: Any) -> Iterator[Given]:
    del request, keys
    for table in feed:
        twice = pa.concat_tables([table, table])
        yield TransformedRows(twice, twice.nbytes)
    yield TransformProgress(END)


@pytest.mark.parametrize("how", ["dlq", "skip"])
def test_l8_rows_of_a_component_that_a_rule_rejects_are_counted_as_records_that_were_read(
    how: Any,
) -> None:
    chain = [component(), validate({"assert_range": {"field": "id", "max": 1}}, 1)]
    given: list[Event] = [batch(*map(person, (1, 2, 3, 4))), state("s"), done(), ConnectorExited(0)]
    went = sync(chain, given, how=how, transform=doubling)
    assert went.counts == ((4, 0, 4, 0) if how == "dlq" else (4, 0, 0, 4))
    assert len(went.lines) == (6 if how == "dlq" else 0) and went.rows == 2
    if how == "dlq":
        first = msgspec.json.decode(went.lines[0])
        assert first == {"id": 2, "age": 2, "tags": ["x", "y"]}


def test_l8_rows_of_a_component_without_a_key_are_counted_as_records_that_were_read() -> None:
    def without(request: Any, feed: Iterator[Any], keys: Any) -> Iterator[Given]:
        del request, keys
        for table in feed:
            bare = table.set_column(0, "id", pa.nulls(table.num_rows, pa.int64()))
            both = pa.concat_tables([bare, bare])
            yield TransformedRows(both, both.nbytes)
        yield TransformProgress(END)

    given: list[Event] = [
        batch(person(1), person(2), person(3)),
        state("s"),
        done(),
        ConnectorExited(0),
    ]
    went = sync([component()], given, key=True, transform=without)
    assert went.counts == (3, 0, 3, 0) and len(went.lines) == 6 and went.rows == 0


def test_l8_rejects_of_rows_are_sealed_where_no_record_is_counted_with_them() -> None:
    """The records of a component's rows are counted after a state, their rejects before it."""
    log, stream = MemoryLog(), StreamId(None, "a")
    lane = LaneStream(
        stream=stream,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
    )
    nothing: Any = lambda *_: None  # noqa: E731
    sealer = Sealer(log, epoch=1, lane=0, streams=[lane], decode=nothing, clock=lambda: 0.0)
    sealer.status(StreamStatus(stream, Status.running))
    sealer.reject(Reject(stream, "bad", b"{}", records=None))
    sealer.finish(clean=True)
    (segment,) = log.segments()
    assert segment.rejects == tuple(log.rejects) and len(segment.rejects) == 1
    assert [(s.read, s.rejected) for s in segment.slices] == [(0, 0)]


# -- a batch that fails

LAKE = TableDestination(open_table("parquet", "lake", {}))
BAD = [sql("SELECT id, 10 / (id - 2) AS x FROM input")]


def test_l7_batch_that_fails_ends_its_stream_and_the_others_go_on() -> None:
    went = sync(BAD, [
        batch(person(1)), state("a1"), batch(person(2)), state("a2"), batch(person(3)),
        Reject(A, "late", b"x"), Schema(A, {}), Activate(A, 1), done(A),
        batch(person(5), stream=B), state("b1", B), done(B), ConnectorExited(0),
    ])  # fmt: skip
    assert went.told() == ["a1", "error of a", "a INCOMPLETE", "b1", "b COMPLETE", "exit 0"]
    assert went.rows == 2, "one of a, one of b"
    assert not any(isinstance(e, (Reject, Schema, Activate)) for e in went.events)
    (error,) = [e for e in went.events if isinstance(e, Error)]
    found = failed(error, "source")
    assert found.stream == "a" and found.code == "transform.failed" and found.connector is None
    assert found.where == "transforms[0].config.query" and found.message.startswith(found.where)
    assert found.hint == "divide by NULLIF(x, 0)"


def test_l1_state_of_several_streams_never_passes_a_stream_that_failed() -> None:
    went = sync(BAD, [
        batch(person(1)), state("all1", None), batch(person(2)), batch(person(1), stream=B),
        state("all2", None), state("b1", B), ConnectorExited(0),
    ])  # fmt: skip
    assert went.told() == ["all1", "error of a", "a INCOMPLETE", "b1", "exit 0"]


def test_lane_ends_at_once_where_every_stream_has_failed() -> None:
    taken: list[int] = []

    def source() -> Iterator[Event]:
        for n in range(100):
            taken.append(n)
            yield batch(person(2))

    went = sync(BAD, source(), streams=(A,))  # type: ignore[arg-type]
    assert went.told() == ["error of a", "a INCOMPLETE", "exit None"] and taken == [0]
    taken.clear()
    went = sync(BAD, source(), streams=(A,), open=True)  # type: ignore[arg-type]
    assert went.told() == ["error of a", "a INCOMPLETE"] and len(taken) == 100


def test_rule_that_ends_the_stream_keeps_what_it_says_of_the_rules() -> None:
    chain = [validate({"assert_range": {"field": "id", "max": 1}}, 0, "fail")]
    went = sync(chain, [batch(person(2)), batch(person(1), stream=B), ConnectorExited(0)])
    (error,) = [e for e in went.events if isinstance(e, Error)]
    found = failed(error, "source")
    assert (found.code, found.stream, found.where) == (
        "transform.validation_failed",
        "a",
        "transforms[0]",
    )
    assert found.connector is not None and found.connector["code"] == "VALIDATION_FAILED"
    assert went.rows == 1


# -- what a pipeline says of them

HEAD = "pipeline: p\nsource: { use: airbyte:source-x }\ndestination: { use: 'parquet:./lake' }\n"


@pytest.mark.parametrize("use", ["transform-sql", "transform-validate", "spark-sql"])
def test_l10_bounds_of_a_built_in_transform_are_held_or_refused(use: str) -> None:
    text = HEAD + (
        f"transforms: [{{ use: {use}, permissions: {{ network: {{ allowed_hosts: [] }} }}, "
        "limits: { max_memory: 1mb, timeout_seconds: 1 }, assume_manifest: {} }]\n"
    )
    pipeline = parse_pipeline(text, {})
    permissions, limits, _ = permissions_asked(pipeline)
    held = {"max_memory": 1 << 20, "timeout_seconds": 1}  # a query, for each batch
    assert (permissions, limits) == ({}, {"transform:0": held} if use == "transform-sql" else {})
    problems = refused(pipeline, LAKE)
    keys = ["assume_manifest"]
    if use != "transform-sql":
        keys = ["limits.max_memory", "limits.timeout_seconds", *keys]
    if use == "spark-sql":  # which may read tables and files; the others reach nothing
        keys = ["permissions.network.allowed_hosts", *keys]
    assert [p.split()[0] for p in problems] == [f"transforms[0].{key}" for key in keys]
    assert all(use in p and "remove the key" in p for p in problems)
    plain = parse_pipeline(HEAD + f"transforms: [{{ use: {use} }}]\n", {})
    assert refused(plain, LAKE) == []


def test_a_v4_file_that_bounds_them_runs_and_is_told_what_is_not_held() -> None:
    text = (
        "pipeline: p\nsource: { use: source-x }\n"
        "destination: { use: dest-postgres, write_mode: append }\n"
        "transforms: [{ use: transform-validate, limits: { timeout_seconds: 5 },"
        " permissions: { env: { allowed_vars: [] } } }]\n"
    )
    pipeline = parse_pipeline(text, {})
    assert pipeline.dialect == "rapidbyte-v4"
    assert not [p for p in refused(pipeline, LAKE) if "transf" in p]
    assert not_enforced(pipeline) == [
        "transforms[0].limits.timeout_seconds is not held: transform-validate runs inside Penstock"
    ]


@pytest.mark.parametrize("use", ["dest-postgres", "parquet"])
def test_v4s_rules_of_validation_hold_in_v4s_files(use: str) -> None:
    """A file whose destination is a table is Penstock's own, whose rules are SQL's."""
    text = (
        "version: '1.0'\npipeline: p\nsource: { use: source-x, streams: [{ name: a,"
        " sync_mode: full_refresh }] }\n"
        f"destination: {{ use: {use}, config: {{ path: x }}, write_mode: append }}\n"
        "transforms: [{ use: transform-validate, config: { rules: [{ assert_unique: id }] } }]\n"
    )
    (job,) = transform_jobs(parse_pipeline(text, {}), (), None)
    chain = Chain([msgspec.structs.replace(job, on_failure="dlq")], IDS)
    made = chain.apply(pa.table({"id": pa.array([1, 2, 1], pa.int64())}))
    assert made.table.column("id").to_pylist() == ([2] if use == "dest-postgres" else [1, 2])


def test_faults_of_all_transforms_are_told_at_once_and_each_once() -> None:
    text = HEAD + (
        "transforms:\n"
        "  - { use: transform-sql, config: { query: 'SELEC 1' } }\n"
        "  - { use: transform-validate, config: { rules: [{ assert_nul: id }] } }\n"
        "  - { use: spark-sql, config: { qeury: x } }\n"
    )
    nothing: Any = None
    with pytest.raises(ConfigError) as told:
        transforms_of(parse_pipeline(text, {}), nothing, nothing, nothing)
    places = [p.split(":")[0] for p in told.value.problems]
    assert places == [
        "transforms[0].config.query", "transforms[1].config.rules[0]", "transforms[2].config"
    ]  # fmt: skip


def test_columns_that_are_missing_are_told_for_all_transforms_whose_columns_are_known() -> None:
    chain = [not_null("emial"), sql("SELECT nmae FROM input", 1), not_null("whatever", 2)]
    with pytest.raises(ConfigError) as told:
        Chain(chain, SCHEMA)
    assert [p.split(".")[0] for p in told.value.problems] == ["transforms[0]", "transforms[1]"]

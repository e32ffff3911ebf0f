"""What a Syncmaven enrichment is asked, and what becomes of its answers (issue 12, parts 1 and 4;
L8, L9, L11). Each enrichment is a process, written from the page's text, in either dialect."""

import json
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec.columns import row_schema
from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.events import LogEvent, Reject, SkippedItems
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.syncmaven.enrichment import SyncmavenEnrichment
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import Reply, Spec, parse
from penstock.protocols.transforming import (
    EnrichmentUse,
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import END
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.process import ProcessRuntime
from penstock.store.keys import MemoryKeys

pytestmark = pytest.mark.dear

STUB = Path(__file__).parents[2] / "stubs" / "stub_enrichment.py"
USERS = StreamId(None, "users")
SCHEMA = RowSchema(
    (
        Field("id", "id", DataType(Kind.integer)),
        Field("full_name", "fullName", DataType(Kind.string)),
        Field("price", "price", DataType(Kind.decimal, precision=10, scale=2)),
        Field("tags", "tags", DataType(Kind.array, item=DataType(Kind.string))),
        Field("more", "more", DataType(Kind.json)),
    )
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("full_name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("more", pa.string()),
    ]
)
BOUNDS = RunTimeouts(start=20, heartbeat=20, stop=2)


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    return tmp_path / "sink.jsonl"


def host(keys: MemoryKeys | None = None, **told: Any) -> Host:
    command = [sys.executable, str(STUB), json.dumps({k: str(v) if isinstance(v, Path) else v
                                                      for k, v in told.items()})]  # fmt: skip
    return Host(
        lambda env: ProcessRuntime(command, env=dict(env), role="transform"),
        None if keys is None else lambda: keys,
        address=lambda: None,
    )


def table(*ids: int, **columns: Any) -> pa.Table:
    rows: dict[str, Any] = {
        "id": list(ids),
        "full_name": [f"n{i}" for i in ids],
        "price": [Decimal("1.50")] * len(ids),
        "tags": [["a"]] * len(ids),
        "more": ['{"k":1}'] * len(ids),
        **columns,
    }
    return pa.table({f.name: pa.array(rows[f.name], f.type) for f in ARROW})


class Made:
    """The answers of a run, by kind."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        tables = [a.table for a in answers if isinstance(a, TransformedRows)]
        self.table = pa.concat_tables(tables, promote_options="default") if tables else None
        self.rows = [] if self.table is None else self.table.to_pylist()
        self.rejects = [a for a in answers if isinstance(a, Reject)]
        self.through = [a.upto for a in answers if isinstance(a, TransformProgress)]
        self.counted = {a.what: a.count for a in answers if isinstance(a, SkippedItems)}
        self.logged = "\n".join(a.message for a in answers if isinstance(a, LogEvent))

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]


def enriched(
    by: Host, *feed: pa.Table, timeouts: RunTimeouts = BOUNDS, key: str = "id", **how: Any
) -> Made:
    configured = ConfiguredStream(
        stream=Stream(id=USERS, json_schema={}),
        sync_mode=SyncMode.incremental,
        destination_sync_mode=DestinationSyncMode.append,
        primary_key=((key,),) if key else (),
    )
    asked = TransformRequest(
        config={"token": "t"},
        stream=configured,
        scope=USERS.key,
        timeouts=timeouts,
        given=SCHEMA,
        made=how.pop("made", SCHEMA),
        enriching=EnrichmentUse(use="syncmaven:./e", pipeline="shop", **how),
    )
    return Made(list(SyncmavenEnrichment().apply(by, asked, iter(feed))))


def heard(sink: Path, type_: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in sink.read_text().splitlines()]
    return [m for m in lines if not type_ or m["type"] == type_]


# -- the conversation


@pytest.mark.parametrize(
    ("dialect", "start"),
    [
        ("code", "enrichment-connect"),
        ("page", "start-enrichment"),
        # its heading and its diagram call the reply `spec`, its example `connection-spec`
        ("heading", "start-enrichment"),
    ],
)
def test_each_dialect_is_started_in_its_own_words(sink: Path, dialect: str, start: str) -> None:
    made = enriched(host(sink=sink, dialect=dialect), table(1, 2), options={"level": 3})
    assert made.column("company") == ["company 1", "company 2"]
    assert made.column("visits") == [1, 2]
    messages = heard(sink)
    assert [m["type"] for m in messages] == ["describe", start, *["enrichment-request"] * 2]
    assert messages[1]["payload"] == {
        "credentials": {"token": "t"},
        "options": {"level": 3},
        "syncId": "shop/users",
    }
    assert messages[2]["payload"]["row"] == {
        "id": 1,
        "fullName": "n1",
        "price": "1.50",
        "tags": ["a"],
        "more": {"k": 1},
    }
    assert made.through == [1, END]


def test_a_row_becomes_none_one_or_many_and_what_comes_back_is_what_was_sent() -> None:
    """L9: a column that the enrichment leaves alone keeps its type and its value."""
    answers: dict[str, Any] = {
        "2": [],
        "3": None,
        "4": [{"id": 4, "fullName": "four", "price": "2.25", "tags": ["x", "y"], "more": [1]}] * 2,
    }
    made = enriched(host(answers=answers), table(1, 2, 3, 4, 5))
    assert made.column("id") == [1, 4, 4, 5]
    assert made.column("price") == [Decimal("1.50"), *[Decimal("2.25")] * 2, Decimal("1.50")]
    assert made.column("full_name") == ["n1", "four", "four", "n5"]
    assert made.column("tags") == [["a"], ["x", "y"], ["x", "y"], ["a"]]
    assert made.column("more") == ['{"k":1}', "[1]", "[1]", '{"k":1}']
    assert made.column("company") == ["company 1", None, None, "company 5"]
    assert not made.rejects
    assert made.table is not None and made.table.schema.names[:5] == ARROW.names


def test_integers_beyond_what_doubles_hold_come_back_whole() -> None:
    """L9: a connector in JavaScript gives 9007199254740993 back as 9007199254740992."""
    big = 2**53 + 1
    answers = {str(big): {"id": 2**53, "fullName": "n"}}
    made = enriched(host(answers=answers), table(big))
    assert made.column("id") == [big] and made.column("price") == [None]


SENT = 2**53 + 1
CAME = 2**53  # of it, in JavaScript


@pytest.mark.parametrize(
    ("more", "came", "kept"),
    [
        ({"p": {"id": SENT}, "l": [SENT, 1.5]}, {"p": {"id": CAME}, "l": [CAME, 1.5]}, None),
        ([{"id": SENT}], [{"id": CAME}], None),
        ([10**400], [10**400], None),
        # something else changed: what did not keeps its digits
        ({"id": SENT, "n": 1}, {"id": CAME, "n": 2}, {"id": SENT, "n": 2}),
        ([SENT, 1], [CAME, 2, 3], [SENT, 2, 3]),
        ([SENT, SENT], [CAME], [SENT]),
        ({"a": {"id": SENT}}, {"a": {"id": CAME}, "b": 1}, {"a": {"id": SENT}, "b": 1}),
        # changes
        ({"n": 1}, {"n": True}, {"n": True}),
        ({"id": SENT}, {"id": SENT + 100}, {"id": SENT + 100}),
        ({"id": SENT}, {"id": str(SENT)}, {"id": str(SENT)}),
        ([10**400], [1.5], [1.5]),
        ({"n": None, "id": SENT}, {"id": CAME}, {"id": SENT}),
    ],
)
def test_integers_inside_objects_and_lists_come_back_whole(more: Any, came: Any, kept: Any) -> None:
    """L9: as an enrichment in JavaScript gives ``{...row}`` back. None: nothing changed, and the
    column keeps its text, whatever its spaces are."""
    text = json.dumps(more, indent=1)
    answers = {"1": {"id": 1, "fullName": "n1", "price": "1.50", "tags": ["a"], "more": came}}
    made = enriched(host(answers=answers), table(1, more=[text]))
    (found,) = made.column("more")
    assert found == text if kept is None else json.loads(found) == kept


def test_values_that_are_nested_deeper_than_anyone_compares_them_are_compared() -> None:
    deep, last = "[" * 300 + str(SENT), "]" * 300
    answers = {"1": {"id": 1, "more": json.loads(f"{deep}{last}")}}
    made = enriched(host(answers=answers), table(1, more=[f"{deep} {last}"]))
    assert made.column("more") == [f"{deep} {last}"]


def test_new_properties_have_the_type_of_their_first_value_and_json_stays_json() -> None:
    answers: dict[str, Any] = {
        "1": {"id": 1, "score": 1, "flag": True, "geo": {"lat": 1.5}, "full_name": "own"},
        "2": {"id": 2, "score": 2.5, "flag": None, "geo": [1]},
    }
    made = enriched(host(answers=answers), table(1, 2))
    assert made.column("score") == [1.0, 2.5] and made.column("flag") == [True, None]
    assert made.column("geo") == ['{"lat":1.5}', "[1]"]
    assert made.column("full_name_") == ["own", None], "another property's cleaned name is kept"
    assert made.table is not None
    kinds = {f.name: f.type.kind for f in row_schema(made.table.schema).fields}
    assert (kinds["geo"], kinds["score"], kinds["flag"]) == (Kind.json, Kind.number, Kind.boolean)


def test_declared_columns_are_there_before_any_row_and_in_every_row() -> None:
    declared = {"score": DataType(Kind.decimal, precision=6, scale=3)}
    request = TransformRequest(
        config={},
        stream=ConfiguredStream(
            stream=Stream(id=USERS, json_schema={}),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
        ),
        scope=USERS.key,
        enriching=EnrichmentUse(use="x", columns=declared),
    )
    outline = SyncmavenEnrichment().outline(host(), request, ARROW)
    assert outline is not None and outline.names == [*ARROW.names, "score"]
    made = enriched(host(answers={"2": {"id": 2, "score": 0.125}}), table(1, 2), columns=declared)
    assert made.column("score") == [None, Decimal("0.125")]


def test_an_answer_that_leaves_out_the_mark_of_a_row_that_is_gone_does_not_bring_it_back() -> None:
    """Connectors write down what they know of a row; Airbyte's mark is not among it."""
    marked = table(1, 2).append_column("_ab_cdc_deleted_at", pa.array([None, "2026-01-01"]))
    answers = {"1": {"id": 1, "company": "a"}, "2": {"id": 2, "company": "b"}}
    made = enriched(host(answers=answers), marked, kept=("_ab_cdc_deleted_at",))
    assert made.column("company") == ["a", "b"]
    assert made.column("_ab_cdc_deleted_at") == [None, "2026-01-01"]
    named = {"2": {"id": 2, "_ab_cdc_deleted_at": None}}
    made = enriched(host(answers=named), marked, kept=("_ab_cdc_deleted_at",))
    assert made.column("_ab_cdc_deleted_at") == [None, None], "it may say so itself"


@pytest.mark.parametrize(
    ("raw", "by_page"),
    [
        ({"type": "connection-spec", "credentialsSchema": {}}, True),
        ({"type": "connection-spec", "payload": {"roles": ["enrichment"]}}, True),
        ({"type": "spec", "credentialsSchema": {}}, True),
        ({"type": "spec", "payload": {"credentialsSchema": {}}}, True),
        ({"type": "spec"}, True),
        ({"type": "spec", "payload": {"roles": ["enrichment"]}}, False),
        ({"type": "spec", "payload": {"roles": [], "connectionCredentials": {}}}, False),
        ({"type": "spec", "payload": {"connectionCredentials": {}}}, False),
    ],
)
def test_the_words_of_a_spec_tell_its_dialect(raw: dict[str, Any], by_page: bool) -> None:
    spec = parse(Reply.spec, raw)
    assert isinstance(spec, Spec) and spec.by_page is by_page


# -- several processes, and order


def test_several_processes_share_the_rows_and_order_is_kept(sink: Path) -> None:
    ids = list(range(1, 401))
    by = host(sink=sink, slow={"1": 0.5})
    made = enriched(by, table(*ids[:300]), table(*ids[300:]), processes=3, ahead=8)
    assert made.column("id") == ids
    assert made.column("company") == [f"company {i}" for i in ids]
    requests = heard(sink, "enrichment-request")
    assert sorted(m["payload"]["row"]["id"] for m in requests) == ids, "each is asked once"
    assert len({m["pid"] for m in requests}) == 3
    assert {m["payload"]["syncId"] for m in heard(sink, "enrichment-connect")} == {"shop/users"}


# -- faults of a row


FAULTS: dict[str, Any] = {
    "2": {"payload": {"error": "no such company"}},
    "3": {"payload": {}},
    "4": {"payload": {"row": "four"}},
    "5": {"payload": {"row": [{"id": 5}, 7]}},
    "6": {"payload": {"error": {"message": "quota of the row"}, "row": []}},
    "7": {"id": "seven"},
}


@pytest.mark.parametrize("dialect", ["code", "page"])
def test_l8_a_row_without_an_answer_that_fits_is_a_reject(dialect: str) -> None:
    made = enriched(host(answers=FAULTS, dialect=dialect), table(*range(1, 9)))
    assert made.column("id") == [1, 8]
    reasons = [(json.loads(r.raw)["id"], r.reason) for r in made.rejects]
    assert reasons[:3] == [
        (2, "the enrichment: no such company"),
        (3, "the enrichment: the answer has no row"),
        (4, "the enrichment: the answer's row is not an object"),
    ]
    assert [i for i, _ in reasons] == [2, 3, 4, 5, 6, 7]
    assert "does not fit" in reasons[5][1] and made.rejects[5].field == "id"


def test_or_it_goes_on_as_it_is() -> None:
    made = enriched(host(answers=FAULTS), table(*range(1, 9)), on_error="pass")
    assert made.column("id") == list(range(1, 9)) and not made.rejects
    assert made.column("company") == ["company 1", *[None] * 6, "company 8"]
    assert made.column("price") == [Decimal("1.50")] * 8
    assert made.counted == {"rows_not_enriched": 6}


# -- a bad enrichment (L11: every wait ends)


QUICK = RunTimeouts(start=10, heartbeat=0.7, stop=1)


@pytest.mark.parametrize(
    ("told", "code", "words"),
    [
        ({"silent": 0}, "transform.heartbeat", "answered no request within 0.7 s"),
        ({"silent": 100}, "transform.heartbeat", "answered no request"),
        ({"halt": {"at": "enrichment-request", "after": 100}}, "transform.halted", "quota"),
        (
            {"halt": {"at": "enrichment-request", "after": 100, "status": None}},
            "transform.halted",
            "quota",
        ),
        ({"halt": {"at": "enrichment-connect"}}, "transform.halted", "quota"),
        ({"die": {"at": "enrichment-request", "after": 100}}, "transform.exited", "disk is full"),
        (
            {"die": {"at": "enrichment-request", "after": 100, "code": 0}},
            "transform.exited",
            "exited with code 0",
        ),
        ({"die": {"at": "enrichment-connect"}}, "transform.exited", "disk is full"),
        ({"twice": 100}, "transform.unasked_answer", "no request"),
        ({"early": True}, "transform.unasked_answer", "no request"),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_l11_a_bad_enrichment_ends_the_run_and_completes_nothing(
    told: dict[str, Any], code: str, words: str, processes: int
) -> None:
    began = time.monotonic()

    with pytest.raises(SourceError) as caught:
        enriched(host(**told), table(*range(1, 401)), timeouts=QUICK, processes=processes)
    assert caught.value.code == code and caught.value.hint
    assert words in caught.value.message
    assert time.monotonic() - began < 20


def test_noise_between_answers_is_a_log(sink: Path) -> None:
    noise = ["", "loading ...", "{not: 'a message'", '{"type":"log","payload":{"message":"hi"}}']
    made = enriched(host(between=noise), table(1, 2, 3))
    assert made.column("visits") == [1, 2, 3] and "hi" in made.logged


@pytest.mark.parametrize("roles", [["destination"], []])
def test_a_package_that_is_a_destination_only_is_refused(roles: list[str]) -> None:
    for ask in (
        lambda: SyncmavenEnrichment().spec(host(roles=roles), BOUNDS, lambda _: None),
        lambda: enriched(host(roles=roles), table(1)),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert caught.value.code == "connector.not_an_enrichment"


def test_check_sees_credentials_that_are_refused() -> None:
    role = SyncmavenEnrichment()
    assert role.check(host(), {}, BOUNDS, lambda _: None).succeeded
    refused = host(halt={"at": "enrichment-connect"})
    found = role.check(refused, {}, BOUNDS, lambda _: None)
    assert not found.succeeded and "quota" in (found.message or "")


# -- the cache


def test_rows_of_the_same_key_are_asked_once_while_the_answer_is_good(sink: Path) -> None:
    keys = MemoryKeys()
    answers: dict[str, Any] = {"2": [], "3": {"payload": {"error": "not today"}}}

    def asked(*rows: pa.Table, **how: Any) -> tuple[list[int], Made]:
        sink.write_text("")
        made = enriched(host(keys, sink=sink, answers=answers), *rows, **how)
        found = heard(sink, "enrichment-request")
        return [m["payload"]["row"]["id"] for m in found], made

    first, _ = asked(table(1, 2, 3), cache_seconds=60)
    assert first == [1, 2, 3]
    again, made = asked(table(1, 2, 3, 4, full_name=["new"] * 4), cache_seconds=60)
    assert again == [3, 4], "a fault is not kept"
    assert made.column("id") == [1, 4]
    assert made.column("company") == ["company 1", "company 4"]
    assert made.column("full_name") == ["new", "new"], "what is outside the key is the row's own"
    assert asked(table(1), cache_seconds=60, options={"level": 2})[0] == [1]
    assert asked(table(1), cache_seconds=60, cache_key=("fullName",))[0] == [1]
    assert asked(table(9, full_name=["n1"]), cache_seconds=60, cache_key=("fullName",))[0] == []
    assert asked(table(1), cache_seconds=60, key="")[0] == [1]
    assert asked(table(1), cache_seconds=60, key="")[0] == [], "the whole row is the key"
    assert asked(table(1))[0] == [1], "without a cache"
    time.sleep(0.05)
    assert asked(table(1), cache_seconds=0.01)[0] == [1], "too old"

"""Where the tables of streams lie under `destination.namespace` and `destination.prefix`; a name
that was given never moves."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Destination
from penstock.engine.plan.description import describe
from penstock.engine.plan.stream_plan import StreamRules
from penstock.engine.plan.streams import plan_streams
from penstock.engine.plan.table_names import misnamed, record_names, table_names
from penstock.engine.run import spark as run_spark
from penstock.engine.run import start
from penstock.engine.specs.observer import NullObserver
from penstock.errors import ConfigError
from penstock.model.catalog import Catalog, Stream, StreamId
from penstock.model.names import clean_tables, split_table
from penstock.model.report import Report
from penstock.protocols.airbyte.package import PACKAGE
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, TableNames
from penstock.tables.formats import open_table

A, B, BARE = StreamId("shop", "users"), StreamId("web", "users"), StreamId(None, "users")
STUB = Path(__file__).parents[2] / "stubs" / "stub_source.py"


def told(**keys: Any) -> Destination:
    return Destination(use="parquet:./lake", **keys)


def names_of(
    destination: Destination, *streams: StreamId, names: TableNames | None = None
) -> TableNames:
    """What the store knows after a run."""
    before = names or TableNames()
    assert misnamed(destination, streams, before) == []
    return grown(before, table_names(destination, streams, before))


def grown(before: TableNames, kept: TableNames) -> TableNames:
    return TableNames(
        tables=before.tables | kept.tables,
        targets=before.targets | kept.targets,
        records=before.records | kept.records,
    )


def places(names: TableNames) -> list[tuple[str | None, str]]:
    return [split_table(text) for text in names.tables.values()]


@pytest.mark.parametrize(
    ("keys", "of_shop", "of_bare"),
    [
        ({}, ("shop", "users"), (None, "users")),
        ({"prefix": "crm_"}, ("shop", "crm_users"), (None, "crm_users")),
        ({"namespace": "destination", "prefix": "x_"}, (None, "x_users"), (None, "x_users")),
        ({"namespace": "raw_${SOURCE_NAMESPACE}"}, ("raw_shop", "users"), ("raw_", "users")),
        ({"namespace": ""}, (None, "users"), (None, "users")),
    ],
)
def test_a_table_is_called_as_the_file_says(
    keys: dict[str, str], of_shop: Any, of_bare: Any
) -> None:
    """docs/pipeline-file.md, Names at the destination."""
    assert places(names_of(told(**keys), A)) == [of_shop]
    assert places(names_of(told(**keys), BARE)) == [of_bare]


def test_names_of_earlier_pipelines_stay_as_they_are() -> None:
    """Without the two keys the answer is that of ``clean_tables``, and nothing more is kept."""
    streams = [A, B, BARE, StreamId("s/p", "a b"), StreamId("s_p", "A B")]
    before = clean_tables(streams[:3])
    found = table_names(told(), streams, TableNames(tables=before))
    assert found == TableNames(tables=clean_tables(streams, before))


def test_a_connector_gets_its_targets_and_no_table_moves() -> None:
    """Pipelines into connectors have kept table names of their own streams all along."""
    destination = Destination(use="singer:target-x", prefix="crm_", namespace="raw")
    names = TableNames(tables=clean_tables([A, BARE]))
    assert misnamed(destination, [A, BARE], names) == []
    assert table_names(destination, [A, BARE], names) == names


def test_a_table_never_moves() -> None:
    plain, prefixed = names_of(told(), A), names_of(told(prefix="crm_"), A)
    assert names_of(told(prefix="crm_"), A, names=prefixed) == prefixed
    (there,) = misnamed(told(prefix="crm_"), [A], plain)
    assert "'shop.users'" in there and "'shop.crm_users'" in there
    (back,) = misnamed(told(), [A], prefixed)
    assert "'shop.crm_users'" in back and "cannot become 'shop.users'" in back


def test_streams_that_would_share_a_table_are_refused() -> None:
    together = told(namespace="lake")
    (clash,) = misnamed(together, [A, B], TableNames())
    assert "shop.users, web.users" in clash and "'lake.users'" in clash
    one_by_one = names_of(together, A)
    (owned,) = misnamed(together, [B], one_by_one)
    assert "stream web.users" in owned and "the table of stream shop.users" in owned
    lake = names_of(told(namespace="lake"), A)
    (taken,) = misnamed(told(), [StreamId("lake", "users")], lake)
    assert "the table of stream shop.users" in taken


def test_a_namespace_has_one_folder_for_all_its_streams() -> None:
    """Also where its cleaned form needed a suffix, and for streams that come later."""
    destination = told(namespace="my lake")
    first = names_of(destination, A)
    later = names_of(destination, StreamId("web", "orders"), names=first)
    assert len({space for space, _ in places(later)}) == 1


def called(**records: str | None) -> list[Stream]:
    return [
        Stream(id=StreamId(None, name), json_schema={}, record_name=record)
        for name, record in records.items()
    ]


def tables(names: TableNames, *streams: Stream) -> tuple[dict[str, str], TableNames]:
    """(table by stream, what the store knows then)."""
    own, ids = record_names(streams, names), [s.id for s in streams]
    assert misnamed(told(), ids, names, own) == []
    after = grown(names, table_names(told(), ids, names, own))
    return {s.id.name: split_table(after.tables[s.id.key])[1] for s in streams}, after


def test_a_taps_table_is_called_as_its_records_are() -> None:
    orders, users = called(shop_orders="orders", users=None)
    found, names = tables(TableNames(), orders, users)
    assert found == {"shop_orders": "orders", "users": "users"}
    again = called(web_orders="orders", shop_orders="orders", x="users", y="Fresh")
    found, names = tables(names, *again)  # a name that was given stays, and is not given twice
    assert found == {"web_orders": "web_orders", "shop_orders": "orders", "x": "x", "y": "Fresh"}
    assert tables(names, *called(shop_orders=None))[0] == {"shop_orders": "orders"}


def test_taps_tables_that_would_share_a_name_have_their_streams() -> None:
    found, _ = tables(TableNames(), *called(a="orders", b="Orders", c="d", d="e", e="f", f=None))
    assert found == {"a": "a", "b": "b", "c": "c", "d": "d", "e": "e", "f": "f"}


def test_a_table_of_before_keeps_its_streams_name() -> None:
    _, before = tables(TableNames(), *called(shop_orders=None))
    found, _ = tables(before, *called(shop_orders="orders", web_orders="orders"))
    assert found == {"shop_orders": "shop_orders", "web_orders": "web_orders"}


TAP = """
import json
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
print(json.dumps({"type": "SCHEMA", "stream": "web-users", "schema": schema, "key_properties": []}))
print(json.dumps({"type": "RECORD", "stream": "web-users", "record": {"id": 1}}))
"""


@pytest.mark.parametrize("open_", [False, True])
def test_a_run_keeps_the_names_that_it_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_: bool
) -> None:
    """Also of streams that show only while they are read. No Spark: nothing is loaded."""
    monkeypatch.setattr(run_spark.RunSpark, "start_early", lambda *_: None)
    monkeypatch.setattr(run_spark.RunSpark, "open", lambda *_: None)
    (tmp_path / "tap.py").write_text(TAP)
    use, name = f"airbyte:{sys.executable} {STUB}", "s0"
    if open_:
        use, name = f"singer:{sys.executable} {tmp_path / 'tap.py'}", "web-users"

    def once(prefix: str) -> Report:
        source = {"use": use, "config": {} if open_ else {"streams": 1, "records": 3}}
        source |= {"catalog_argument": "none"} if open_ else {}
        destination = {"use": f"parquet:{tmp_path / 'lake'}", "prefix": prefix}
        text = json.dumps({"pipeline": "p", "source": source, "destination": destination})
        return start.run_pipeline(parse_pipeline(text, {}), Home(tmp_path), observer=NullObserver())

    table = str(tmp_path / "lake" / clean_name(f"crm_{name}"))
    for _ in range(2):
        report = once("crm_")
        assert (report.exit_code, [s.table for s in report.streams]) == (0, [table])
    store = open_store(Home(tmp_path).state_url())
    stream = StreamId(None, name)
    assert store.remembered("p").tables.targets == {stream.key: StreamId(None, f"crm_{name}").key}
    store.close()
    if open_:
        report = once("other_")
        assert report.exit_code == 2 and report.error is not None
        assert "another name" in report.error["message"]
        return
    with pytest.raises(ConfigError) as refused:
        once("other_")
    assert "another name" in refused.value.problems[0]


def clean_name(name: str) -> str:
    return split_table(clean_tables([StreamId(None, name)])[StreamId(None, name).key])[1]


def test_a_plan_says_where_and_what_cannot_be(tmp_path: Any) -> None:
    text = (
        "pipeline: p\nsource: { use: airbyte:source-x }\n"
        "destination: { use: 'parquet:./lake', namespace: lake, prefix: crm_ }\n"
    )
    table = open_table("parquet", str(tmp_path), {})

    def planned(*streams: StreamId) -> Any:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
        return plan_streams(
            parse_pipeline(text, {}),
            Catalog(tuple(Stream(id=s, json_schema=schema) for s in streams)),
            StreamRules(
                package=PACKAGE,
                destination=table,
                earlier=Remembered(),
                metadata=None,
                sync_id=1,
            ),
            known=set(),
            states=(),
            cores=1,
        )

    plan = planned(A)
    assert [s["table"] for s in describe(plan, table)] == [str(tmp_path / "lake" / "crm_users")]
    assert plan.found.tables.targets == {A.key: StreamId("lake", "crm_users").key}
    with pytest.raises(ConfigError) as refused:  # one of them would replace the other's rows
        planned(A, B)
    assert "would all be 'lake.crm_users'" in refused.value.problems[0]

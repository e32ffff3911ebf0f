"""Real, unmodified taps from the package registry, read as a lane reads them (issue 4, Real).

Their environments are built once for all tests here, by the code that builds them for users.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.errors import SourceError
from penstock.model.catalog import ConfiguredStream, StreamId, SyncMode
from penstock.model.events import Batch, ConnectorExited, Error, Event, Schema, State
from penstock.model.state import StoredState
from penstock.protocols.reading import ReadRequest, StreamOverrides
from penstock.protocols.singer.package import PACKAGE
from penstock.runtimes.contract import RunTimeouts

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

_place = Path(__file__).parents[2] / "store" / "conftest.py"
_spec = importlib.util.spec_from_file_location("postgres_fixture_for_taps", _place)
assert _spec is not None and _spec.loader is not None
_fixture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixture)
postgres_cluster = _fixture.postgres_cluster

ORDERS = StreamId(None, "shop-orders")
LIMITS = RunTimeouts(start=60, heartbeat=60, total=120)


@pytest.fixture(scope="module")
def tap(connector_environments: Path) -> SourceConnector:
    return resolve(SourceConnector, "singer:meltanolabs-tap-postgres", connector_environments)


@pytest.fixture
def config(tap: SourceConnector, postgres_cluster: str) -> Iterator[dict[str, Any]]:
    import psycopg

    place = f"host={postgres_cluster} user=penstock dbname=postgres"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
        connection.execute("CREATE SCHEMA shop")
        connection.execute(
            "CREATE TABLE shop.orders (id bigint PRIMARY KEY, name text, price numeric(12, 2),"
            " at timestamptz, tags int[], extra jsonb, raw bytea)"
        )
        connection.execute(
            "INSERT INTO shop.orders SELECT i, 'n' || i, i * 1.5, '2024-01-01'::timestamptz"
            " + i * interval '1 minute', ARRAY[1, 2], '{\"a\": 1}', 'abc'"
            " FROM generate_series(1, 20) i"
        )
    # The tap wants a host and a password; the cluster has a socket and neither.
    url = f"postgresql://penstock:s3cr3t@localhost/postgres?host={postgres_cluster}"
    yield {"sqlalchemy_url": url, "filter_schemas": ["shop"]}


def configured(tap: SourceConnector, config: dict[str, Any], **overrides: Any) -> ConfiguredStream:
    stream = tap.discover(config).get(ORDERS)
    assert stream is not None
    return PACKAGE.source.configure(stream, StreamOverrides(**overrides))


def read(
    tap: SourceConnector, config: dict[str, Any], stream: ConfiguredStream, *states: StoredState
) -> list[Event]:
    request = ReadRequest(
        config=config,
        streams=(stream,),
        states=states,
        timeouts=LIMITS,
        abilities=tap.spec().abilities,
    )
    return list(tap.read(request))


def ids(events: list[Event]) -> list[int]:
    assert not [e for e in events if isinstance(e, Error | Schema)]
    assert isinstance(events[-1], ConnectorExited) and events[-1].code == 0, events[-1]
    bodies = [b for e in events if isinstance(e, Batch) and e.stream == ORDERS for b in e.bodies]
    return [json.loads(bytes(b))["id"] for b in bodies]


def test_discovery_without_a_server_says_why_and_keeps_the_password_L10(tap: SourceConnector):
    config = {"host": "127.0.0.1", "port": 1, "user": "u", "password": "s3cr3t", "database": "d"}
    result = tap.check(config)
    assert not result.succeeded
    assert "Connection refused" in str(result.message)
    with pytest.raises(SourceError) as caught:
        tap.discover(config)
    assert "Connection refused" in caught.value.message
    assert "s3cr3t" not in json.dumps([caught.value.as_dict(), str(result.message)])


def test_full_refresh(tap: SourceConnector, config: dict[str, Any]):
    stream = configured(tap, config)
    assert (stream.sync_mode, stream.primary_key) == (SyncMode.full_refresh, (("id",),))
    events = read(tap, config, stream)
    assert sorted(ids(events)) == list(range(1, 21))


def test_incremental_and_then_only_what_is_new(
    tap: SourceConnector, config: dict[str, Any], postgres_cluster: str
):
    import psycopg

    stream = configured(tap, config, sync_mode="incremental", cursor_field=("id",))
    first = read(tap, config, stream)
    assert sorted(ids(first)) == list(range(1, 21))
    last = [e for e in first if isinstance(e, State)][-1]
    saved = StoredState(last.scope, last.blob)
    shown = PACKAGE.state.describe([saved])["streams"]
    assert [s["name"] for s in shown] == [ORDERS.name]
    with psycopg.connect(f"host={postgres_cluster} user=penstock dbname=postgres") as connection:
        connection.execute("INSERT INTO shop.orders (id, name) VALUES (21, 'new')")
    # A bookmark is compared with >=: the last one comes again.
    assert ids(read(tap, config, stream, saved)) == [20, 21]
    anew = PACKAGE.state.reset([saved], ORDERS)
    assert len(ids(read(tap, config, stream, *anew))) == 21

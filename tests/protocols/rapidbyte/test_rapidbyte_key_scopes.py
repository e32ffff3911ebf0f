"""Keys of scope 1 are the source's stream's, for every role, whatever a destination calls it
(section 4.3); a reset of the stream finds them all."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.codec.arrow import part_schema
from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.types import DataType, Field, Kind, RowSchema
from penstock.protocols.rapidbyte.package import PACKAGE
from penstock.protocols.reading import ReadRequest
from penstock.protocols.transforming import TransformRequest
from penstock.protocols.writing import Rows, WriteRequest, WriteStream
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of
from penstock.store.contract import GroupIntent, Reset, Store
from penstock.store.keys import CoveredKeys, KeyAddress, KeyPort, covers
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.task_keys import keys_url, open_keys

NUMBERS, OTHERS = StreamId(None, "numbers"), StreamId("b", "numbers")
ID = RowSchema((Field("id", "id", DataType(Kind.integer)),), 1)


class Shop:
    def __init__(self, store: Store, opener: Callable[[str, str], KeyPort]) -> None:
        self.store, self.opener = store, opener
        self.lease = store.acquire("shop", this_holder("r"), 600)
        store.begin_keys(self.lease, "t")

    def commit(self, streams: list[StreamId]) -> None:
        """All that was kept for these is durable."""
        keys = [
            CoveredKeys("t", s.key, 99, place) for s in streams for place in ("", "transform:0")
        ]
        group = GroupIntent(loads=(), states=(), epoch=1, consumes=(), keys=tuple(keys))
        self.store.settle(self.lease, [group], lambda old, new: [*new])

    def found(self, stream: StreamId, key: str) -> str | None:
        return self.opener("shop", "x").get(KeyAddress("stream", stream.key, key))


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "memory":
        twin = MemoryStore()
        yield Shop(twin, twin.open_keys)
        return
    url = keys_url(tmp_path / "s.db")
    store = open_store(str(tmp_path / "s.db"))
    yield Shop(store, lambda pipeline, task: open_keys(url, pipeline, task))
    store.close()


def runtime(shop: Shop, folder: Path, role: str, file: str) -> ComponentRuntime:
    binary = rapidbyte_guests.c_guest(role, file)
    path = folder / f"{role}.wasm"
    path.write_bytes(binary)
    cache = str(rapidbyte_guests.CACHE / "compiled")
    component = Component(path=str(path), digest=digest_of(binary), cache=cache)
    return ComponentRuntime(component, keys=lambda: shop.opener("shop", "t"))


def configured(stream: StreamId) -> ConfiguredStream:
    return ConfiguredStream(
        stream=Stream(id=stream, json_schema={}),
        sync_mode=SyncMode.full_refresh,
        destination_sync_mode=DestinationSyncMode.append,
    )


def use(shop: Shop, folder: Path, stream: StreamId, role: str) -> str:
    """Lets it put a key of scope 1 for this stream: the key's name."""
    one: Any = pa.table({"id": [1]})
    match role:
        case "source":
            asked = ReadRequest(config={"mode": "probe"}, streams=(configured(stream),))
            list(PACKAGE.source.read(runtime(shop, folder, role, "guest.c"), asked))
            return "k"
        case "transform":
            assert PACKAGE.transform is not None
            request = TransformRequest(
                config={"count_key": 1},
                stream=configured(stream),
                scope=covers(stream.key, "transform:0"),
            )
            guest = runtime(shop, folder, role, "passing.c")
            list(PACKAGE.transform.apply(guest, request, iter([one])))
            return "frames"
        case _:
            assert PACKAGE.destination is not None
            write = WriteStream(
                configured=configured(stream),
                target=StreamId("lake", f"raw_{stream.namespace}_{stream.name}"),
                schemas={1: ID},
                latest=1,
            )
            whole = part_schema(ID)
            columns = [pa.array([1]) if n == "id" else pa.nulls(1, whole.field(n).type)
                       for n in whole.names]  # fmt: skip
            fed = Rows(stream, 1, pa.RecordBatch.from_arrays(columns, schema=whole))
            request = WriteRequest(
                config={}, streams=(write,), source_protocol="airbyte", tick=0.05
            )
            guest = runtime(shop, folder, role, "sink.c")
            list(PACKAGE.destination.write(guest, request, iter([fed])))
            return "committed"


@pytest.mark.parametrize(
    ("role", "streams"),
    [("source", [NUMBERS]), ("transform", [NUMBERS, OTHERS]), ("destination", [NUMBERS, OTHERS])],
)
def test_a_reset_finds_the_streams_keys_of_every_role(
    shop: Shop, tmp_path: Path, role: str, streams: list[StreamId]
) -> None:
    (key,) = {use(shop, tmp_path, stream, role) for stream in streams}
    shop.commit(streams)
    assert all(shop.found(s, key) is not None for s in streams), "each under its own name"
    reset = Reset((NUMBERS,), lambda states: [])
    shop.store.replace_states(shop.lease, [], reset)
    assert [s for s in (NUMBERS, OTHERS) if shop.found(s, key) is not None] == streams[1:]

"""The transform role over a real component: what a checkpoint of kind 2 means (protocol, sections
4.2 and 7; v4's host logs it and nothing else)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import rapidbyte_guests

from penstock.model.catalog import (
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import ConnectorMetrics, Error, LogEvent, Reject, SkippedItems
from penstock.protocols.failures import failed
from penstock.protocols.rapidbyte.transform import RapidbyteTransform
from penstock.protocols.transforming import (
    TransformedRows,
    TransformProgress,
    TransformRequest,
)
from penstock.protocols.writing import END
from penstock.runtimes.contract import Component
from penstock.runtimes.wasm.component import ComponentRuntime, digest_of

A = StreamId(None, "a")


def applied(folder: Path, config: dict[str, Any], tables: int, rows: int = 1) -> list[Any]:
    path = folder / "passing.wasm"
    path.write_bytes(rapidbyte_guests.c_guest("transform", "passing.c"))
    runtime = ComponentRuntime(
        Component(
            path=str(path),
            digest=digest_of(path.read_bytes()),
            cache=str(rapidbyte_guests.CACHE / "compiled"),
            settings={"place": "transform:0"},
        )
    )
    request = TransformRequest(
        config={"stream": "a", **config},
        stream=ConfiguredStream(
            stream=Stream(id=A, json_schema={}),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
            cursor_field=("id",),
        ),
        scope=A.key,
    )

    def feed() -> Iterator[Any]:
        yield from (pa.table({"id": [n] * rows}) for n in range(tables))

    return list(RapidbyteTransform().apply(runtime, request, feed()))


@pytest.mark.parametrize("hold", [0, 2, 9])
def test_l1_a_checkpoint_of_a_transform_moves_nothing_and_is_reported(
    tmp_path: Path, hold: int
) -> None:
    """It may be made before the rows that were taken have come out. Only the good end says that
    all of them have; it comes last."""
    given = applied(tmp_path, {"hold": hold, "checkpoint_every": 1, "bad_checkpoint": 1}, 4)
    rows = [n for g in given if isinstance(g, TransformedRows) for n in g.table["id"].to_pylist()]
    assert rows == [0, 1, 2, 3]
    progress = [g for g in given if isinstance(g, TransformProgress)]
    assert [p.upto for p in progress] == [END] and given[-1] is progress[0]
    told = [s for g in given if isinstance(g, ConnectorMetrics) for s in g.series]
    (mark,) = [s for s in told if s["name"] == "transform_checkpoint"]
    assert (mark["transform"], mark["count"]) == ("transform:0", 4)
    assert mark["last"]["kind"] == "transform"
    assert [g.what for g in given if isinstance(g, SkippedItems)] == ["malformed:checkpoint"]


def test_l1_a_transform_that_fails_behind_a_checkpoint_has_got_nowhere(tmp_path: Path) -> None:
    given = applied(tmp_path, {"checkpoint_every": 1, "fail_at": 3}, 4)
    assert not [g for g in given if isinstance(g, TransformProgress)]
    assert [g.stream for g in given if isinstance(g, Error)] == [A]
    assert [s["count"] for g in given if isinstance(g, ConnectorMetrics) for s in g.series
            if s["name"] == "transform_checkpoint"] == [2]  # fmt: skip


@pytest.mark.parametrize("config", [{"lose": 2}, {"lose": 1}, {"lose": 1, "dead": 1}])
def test_l8_a_transform_that_read_fewer_rows_than_it_was_given_did_not_end_well(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """It says so in ``records-in`` of its summary; a record that it put aside was read too."""
    given = applied(tmp_path, config, 3, rows=4)
    assert not [g for g in given if isinstance(g, TransformProgress)]
    (error,) = (g for g in given if isinstance(g, Error))
    assert (error.stream, failed(error, "transform").code) == (A, "transform.miscounted")
    assert f"read {12 - 3 * config['lose']} of the 12 rows" in error.message


@pytest.mark.parametrize("config", [{}, {"dead": 1}, {"mute": 1}])
def test_l8_rows_that_a_transform_read_need_not_come_out(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """A counter that is not in use says nothing, and the log says so."""
    given = applied(tmp_path, config, 3, rows=4)
    assert not [g for g in given if isinstance(g, Error)]
    assert [g.upto for g in given if isinstance(g, TransformProgress)] == [END]
    assert len([g for g in given if isinstance(g, Reject)]) == (3 if "dead" in config else 0)
    uncounted = [
        g for g in given if isinstance(g, LogEvent) and "does not count records" in g.message
    ]
    assert len(uncounted) == len(config.keys() & {"mute"})

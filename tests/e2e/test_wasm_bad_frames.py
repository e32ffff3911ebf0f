"""Components whose frames are unsound, and what a component is told of a run of which nothing is
kept (L7, L10; Rapidbyte part 3). No Spark: dry runs and ``preview``."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from wasm_sites import (
    MANIFEST,
    StageEvent,
    WasmSite,
    component,
    ipc,
    numbers_source,
    rapidbyte_guests,
)

from penstock.connectors.reference import parse_ref
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.inspect.preview import preview as rows_of
from penstock.model.events import Batch, Event
from penstock.protocols.rapidbyte.source import RapidbyteSource
from penstock.protocols.reading import ReadRequest

MakeWasm = Callable[..., WasmSite]
FAR = 9_000_000_000_000_000_001


@pytest.fixture
def wasm(tmp_path: Path) -> MakeWasm:
    return lambda binary=None: WasmSite(tmp_path / "w", binary=binary or component(MANIFEST))


def beyond() -> bytes:
    """A string whose offsets lie far beyond its data."""
    sound = ipc(pa.table({"seq": pa.array([1, 2]), "name": ["ab", "cd"]}))
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 2, 4))
    forged = b"".join(n.to_bytes(4, "little") for n in (0, 2_000_000_000, 4))
    assert sound.count(offsets) == 1
    return sound.replace(offsets, forged)


def null_view() -> bytes:
    """A view of a null text that leads out of its frame."""
    views = struct.pack("<i4sii", 20, b"xxxx", 0, 0) + struct.pack("<4i", -(1 << 31), -1, 0, 0)
    buffers = [pa.py_buffer(b"\x01"), pa.py_buffer(views), pa.py_buffer(b"x" * 20)]
    names = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    return ipc(pa.table({"seq": pa.array([6, 7]), "name": names}))


@pytest.mark.parametrize(
    ("make", "words"), [(beyond, "2000000000"), (null_view, "negative size -2147483648")]
)
def test_l7_an_unsound_frame_fails_its_stream_by_name_and_no_other(
    wasm: MakeWasm, make: Callable[[], bytes], words: str
) -> None:
    """It would crash the process that converts it; it is not tried again."""
    here, told = wasm(), StageEvent()
    script = {"s0": [told.rows(1, 5), told.bytes(make())], "s1": [told.rows(1, 7)]}
    ran = here.run(config=told.config(script), dry_run=True)
    assert (ran.exit_code, ran.error["code"]) == (1, "source.bad_frame")
    assert ran.error["stream"] == "s0" and words in ran.error["message"]
    assert ran.stream("s1").status == "complete" and ran.stream("s1").read == 7


def test_l8_nanoseconds_are_shown_and_counted(wasm: MakeWasm) -> None:
    here, told = wasm(), StageEvent()
    table = pa.table({
        "seq": [1, 2, 3], "t": pa.array([FAR, 0, None], pa.timestamp("ns")),
        "j": pa.array([[("k", FAR)]] * 3, pa.map_(pa.string(), pa.timestamp("ns"))),
    })  # fmt: skip
    config = told.config({"s0": [told.frame(table)]})
    ran = here.run(config=config, limit=2)
    assert ran.exit_code == 0, ran.error
    assert ran.stream("s0").read == 2
    shown = here.cli("preview", "./source.wasm", "--config", json.dumps(config), "--json")
    assert shown.code == 0, shown.err
    assert [row["seq"] for row in shown.json["rows"]] == [1, 2, 3]
    assert shown.json["changes"] == 0  # what microseconds do not hold is cut
    assert shown.json["rows"][0]["t"] == "2255-03-14T16:00:00"
    assert "9000000001" not in str(shown.json["rows"][0]["j"])
    assert "2255-03-14T16:00:00.000000001" in str(shown.json["rows"][0]["j"])


def test_a_component_is_told_of_a_dry_run_and_of_a_limit(wasm: MakeWasm) -> None:
    here = wasm(binary=rapidbyte_guests.c_guest("source"))
    config = {"mode": "context", "frames": 0}
    for how, said in (
        ({"dry_run": True}, "phase 0 dry 1 max 0"),
        ({"limit": 3}, "phase 0 dry 1 max 1"),
    ):
        ran = here.run(config=config, **how)
        assert said in {line["message"] for line in here.log_lines(ran.report.run)}


def test_preview_asks_for_no_more_than_it_shows(
    wasm: MakeWasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The C example ends after ``max_records``: no row of its million is made in vain."""
    here, asked, seen = wasm(binary=numbers_source()), list[ReadRequest](), list[int]()
    read = RapidbyteSource.read

    def heard(self: RapidbyteSource, runtime: Any, request: ReadRequest) -> Iterator[Event]:
        asked.append(request)
        for event in read(self, runtime, request):
            seen.append(len(event.bodies) if isinstance(event, Batch) else 0)
            yield event

    monkeypatch.setattr(RapidbyteSource, "read", heard)
    source = resolve(SourceConnector, parse_ref(str(here.wasm)), here.home.connectors)
    config = {"rows": 1_000_000, "batch_rows": 100_000}
    answer = rows_of(source, config, None, 3, lambda _: None)
    assert [row["id"] for row in answer["rows"]] == [1, 2, 3]
    assert answer["rows"][2]["name"] is None and answer["rows"][0]["amount"] == 0.5
    (request,) = asked
    assert (request.limit, request.dry_run) == (3, True)
    assert sum(seen) == 3

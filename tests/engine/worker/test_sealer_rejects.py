"""``engine.worker.sealer``: rejects in memory are bounded over all streams (L8)."""

import json

from penstock.engine.log.memory import MemoryLog
from penstock.engine.specs.lane import LaneBounds, LaneStream
from penstock.engine.worker.sealer import Sealer
from penstock.engine.worker.stream_buffers import REJECT_BYTES
from penstock.model.catalog import DestinationSyncMode, StreamId
from penstock.model.events import Reject
from penstock.model.segments import WriteDisposition


def test_l8_rejects_of_all_streams_together_are_bounded() -> None:
    log, streams = MemoryLog(), [StreamId(None, f"s{i}") for i in range(50)]
    sealer = Sealer(
        log,
        epoch=1,
        lane=0,
        streams=[
            LaneStream(
                stream=s,
                disposition=WriteDisposition(mode=DestinationSyncMode.append),
                schema_version=1,
                generation=0,
                fills_generation=False,
            )
            for s in streams
        ],
        decode=lambda *_: None,  # type: ignore[arg-type, return-value]
        clock=lambda: 0.0,
        bounds=LaneBounds(reject_bytes=10 * (REJECT_BYTES + 100)),
    )
    for turn in range(4):
        for stream in (*streams, None):
            sealer.reject(Reject(stream, "bad", f"{turn}".encode() * 100))
    held = 4 * 51 - sum(raw.count(b"\n") for raw in log.rejects.values())
    assert 0 <= held < 10
    sealer.finish(clean=True)
    lines = [json.loads(line) for raw in log.rejects.values() for line in raw.splitlines()]
    assert len(lines) == 4 * 51
    named = [name for s in log.segments() for name in s.rejects]
    assert sorted(named) == sorted(log.rejects)
    assert sum(s.rejected for g in log.segments() for s in g.slices) == 4 * 50

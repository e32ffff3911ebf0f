"""Reads rejects that a user retries, as the events of a source, in place of a connector.

Each is the record as its source sent it (``engine.log.rejects``), and is decoded by the current
schema. Neighbours: ``engine.run.reject_retry`` chooses them and writes the files,
``engine.worker.lane`` seals the resulting rows, together with their ids.
"""

import base64
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.engine.log.rejects import rejects_path
from penstock.engine.log.retries import RETRIED, RetriedLine
from penstock.engine.specs.lane import RetriedFile
from penstock.engine.worker.sealer import Sealer
from penstock.files import private
from penstock.model.events import Batch, ConnectorExited, Event, Status, StreamStatus
from penstock.runtimes.contract import ConnectionStats
from penstock.tasks.storage import storage

_ROWS, _BYTES = 1 << 14, 8 << 20  # of a batch, at most


def write_ids(root: Path, epoch: int, files: Sequence[RetriedFile], sealer: Sealer) -> None:
    """Writes the ids of each file into the epoch's folder of rejects, where they are sealed with
    the rows of its stream. Call it before the first event. Raises ``LogError``."""
    for number, file in enumerate(files, 1):
        relative = rejects_path(epoch, f"{number:06d}{RETRIED}")
        with storage(root / relative, "write"), private(root / relative, "wb") as ids:
            for line in _lines(file.path):
                ids.write(f"{line.id}\n".encode())
        sealer.accompany(file.stream, relative)


def retried_events(files: Sequence[RetriedFile], stats: ConnectionStats) -> Generator[Event]:
    """Yields the rejects as a source's events; the last one is ``ConnectorExited``. ``stats``:
    counts the bytes."""
    stats.spoke = True
    for file in files:
        for batch in _batches(file):
            stats.bytes += batch.size
            yield batch
        yield StreamStatus(file.stream, Status.complete)
    yield ConnectorExited(0)


def _batches(file: RetriedFile) -> Iterator[Batch]:
    bodies: list[bytes] = []
    times: list[int] = []
    size = 0
    for line in _lines(file.path):
        coded = line.encoding == "base64"
        bodies.append(base64.b64decode(line.body) if coded else line.body.encode())
        times.append(line.at)
        size += len(bodies[-1])
        if len(bodies) >= _ROWS or size >= _BYTES:
            yield Batch(file.stream, bodies, times, size=size)
            bodies, times, size = [], [], 0
    if bodies:
        yield Batch(file.stream, bodies, times, size=size)


def _lines(path: str) -> Iterator[RetriedLine]:
    decoder = msgspec.json.Decoder(RetriedLine)
    with storage(Path(path), "read"), open(path, "rb") as lines:
        for raw in lines:
            yield decoder.decode(raw)

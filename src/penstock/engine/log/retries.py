"""Names, writes and reads the files that say which rejects were tried again, and which the source
sends again by itself.

A kept file of rejects (``runs/RUN/rejects/00000007-000001.jsonl``) has beside it::

    00000007-000001.jsonl.given-up   the streams of which a run gave these rows up: their source
                                     sends them again
    00000012-000001.retried          the ids of the rejects that epoch 12 tried again

An id is the kept file's name and the line, ``00000007-000001:3``; an epoch's number is never used
again in its pipeline, so neither is an id. A file of ids is sealed with the rows that its rejects
became, in one step, and is copied before the log forgets them: each reject is tried once, whatever
is killed. Neighbours: ``engine.worker.retried_source`` writes the ids into the log,
``engine.log.kept_rejects`` copies them, ``engine.run.reject_retry`` reads them all.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from penstock.engine.log.rejects import RejectLine, decode_rejects, kept_name
from penstock.files import make_folder, replace
from penstock.model.segments import ConsumedSlice, Segment
from penstock.tasks.storage import storage

RETRIED, GIVEN_UP = ".retried", ".given-up"


class KeptReject(msgspec.Struct, frozen=True):
    """A reject that is kept. ``run``: whose folder has it. ``file``: its name there."""

    run: str
    file: str
    number: int
    line: RejectLine

    @property
    def id(self) -> str:
        return f"{Path(self.file).stem}:{self.number}"


class RetriedLine(msgspec.Struct, frozen=True):
    """A reject for the lane that tries it again. ``at``: epoch milliseconds."""

    id: str
    body: str
    encoding: str
    at: int


def kept_rejects(run: str, path: Path) -> Iterator[KeptReject]:
    """Yields the rejects of one file of a run's folder. Raises ``msgspec.DecodeError``,
    ``OSError``."""
    for number, line in enumerate(decode_rejects(path.read_bytes()), 1):
        yield KeptReject(run, path.name, number, line)


def ids_tried(folder: Path) -> set[str]:
    """Returns the ids in a run's folder of rejects that were tried again."""
    return {i for path in folder.glob(f"*{RETRIED}") for i in path.read_text().split()}


def ids_sealed(root: Path, segments: Iterable[Segment]) -> set[str]:
    """Returns the ids of rejects that are tried again by rows which wait in the log ``root``."""
    paths = {root / p for segment in segments for p in segment.rejects if p.endswith(RETRIED)}
    return {i for path in paths if path.exists() for i in path.read_text().split()}


def given_up(folder: Path) -> dict[str, set[str]]:
    """Maps files of rejects in a run's folder to the keys of the streams that were given up."""
    return {
        path.name.removesuffix(GIVEN_UP): set(
            msgspec.json.decode(path.read_bytes(), type=list[str])
        )
        for path in folder.glob(f"*{GIVEN_UP}")
    }


def mark_given_up(
    folder: Path, segments: Iterable[Segment], items: Iterable[ConsumedSlice]
) -> None:
    """Writes, durably, which streams' rejects the source will send again. ``folder``: of the run's
    rejects. ``items``: the shares of these segments that are given up."""
    wanted = set(items)
    found: dict[str, set[str]] = {}
    for segment in segments:
        streams = {
            s.stream.key for s in segment.slices if ConsumedSlice(segment.id, s.stream) in wanted
        }
        for path in segment.rejects if streams else ():
            found.setdefault(f"{kept_name(path)}{GIVEN_UP}", set()).update(streams)
    if not found:
        return
    with storage(folder, "write rejects to"):
        make_folder(folder, 0o700)
        for name, streams in found.items():
            path = folder / name
            if path.exists():
                streams |= set(msgspec.json.decode(path.read_bytes(), type=list[str]))
            replace(path, msgspec.json.encode(sorted(streams)), durable=True)

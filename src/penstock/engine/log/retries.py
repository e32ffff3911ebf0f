"""Names, writes and reads the files that list retried rejects, and rejects that the source sends
again by itself.

For a kept file of rejects (``runs/RUN/rejects/00000007-000001.jsonl``) they are::

    LOG/given-up/00000007-000001.jsonl.given-up   the streams of which a run gave these rows up:
                                                  their source sends them again
    runs/RUN/rejects/00000012-000001.retried      the ids of the rejects that epoch 12 tried again

An id is the kept file's name and the line, ``00000007-000001:3``; an epoch's number is never used
again in its pipeline, so neither is an id. A file of ids is sealed with the rows that its rejects
became, in one step. Before the log forgets it, the ids go into the state store: several homes and
runs may have a copy of a reject, and each reject is retried once, whatever is killed. The copy in
the run's folder shows which run it was. Neighbours: ``engine.worker.retried_source`` writes the ids
into the log, ``engine.log.kept_rejects`` keeps them, ``engine.run.reject_retry`` reads them all.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.engine.log.rejects import RejectLine, decode_rejects, kept_name
from penstock.files import make_folder, replace
from penstock.model.segments import ConsumedSlice, Segment
from penstock.tasks.storage import storage

RETRIED, GIVEN_UP = ".retried", ".given-up"
_GIVEN_UP_FOLDER = "given-up"


class KeptReject(msgspec.Struct, frozen=True):
    """A kept reject. ``run``: whose folder has it. ``file``: its name there."""

    run: str
    file: str
    number: int
    line: RejectLine

    @property
    def id(self) -> str:
        return f"{Path(self.file).stem}:{self.number}"


class RetriedLine(msgspec.Struct, frozen=True):
    """A reject for the lane that retries it. ``at``: epoch milliseconds."""

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
    """Returns the ids of retried rejects in a run's folder of rejects."""
    return {i for path in folder.glob(f"*{RETRIED}") for i in path.read_text().split()}


def ids_sealed(root: Path, segments: Iterable[Segment]) -> set[str]:
    """Returns the ids of retried rejects whose rows wait in the log ``root``."""
    paths = {root / p for segment in segments for p in segment.rejects if p.endswith(RETRIED)}
    return {i for path in paths if path.exists() for i in path.read_text().split()}


def stored_text(run: str, ids: Iterable[str]) -> str:
    """Encodes the ids that a run retried as the text that the state store has: ``RUN
    00000007-000001:1-3,7 00000009-000001:2``."""
    numbers: dict[str, list[int]] = {}
    for file, _, number in (id_.rpartition(":") for id_ in ids):
        numbers.setdefault(file, []).append(int(number))
    files = (f"{file}:{_ranges(sorted(found))}" for file, found in sorted(numbers.items()))
    return " ".join((run, *files))


def ids_stored(texts: Iterable[str]) -> dict[str, str]:
    """Maps the ids in texts of :func:`stored_text` to their runs."""
    found: dict[str, str] = {}
    for run, *files in map(str.split, texts):
        for file, _, ranges in (each.rpartition(":") for each in files):
            for first, _, last in (each.partition("-") for each in ranges.split(",")):
                numbers = range(int(first), int(last or first) + 1)
                found.update((f"{file}:{number}", run) for number in numbers)
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """Encodes numbers as ranges. ``numbers``: sorted."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number <= found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def given_up_folder(root: Path) -> Path:
    """Returns the folder in which the log ``root`` lists rejects that the source sends again."""
    return root / _GIVEN_UP_FOLDER


def given_up(folder: Path) -> dict[str, set[str]]:
    """Maps files of rejects to the keys of the streams that were given up. ``folder``: of the log
    (:func:`given_up_folder`), or of a run's rejects, where earlier versions kept it."""
    return {
        path.name.removesuffix(GIVEN_UP): set(
            msgspec.json.decode(path.read_bytes(), type=list[str])
        )
        for path in folder.glob(f"*{GIVEN_UP}")
    }


def mark_given_up(
    folder: Path, segments: Iterable[Segment], items: Iterable[ConsumedSlice]
) -> None:
    """Writes, durably, for which streams the source will send rejects again. ``folder``: of the log
    (:func:`given_up_folder`). ``items``: the shares of these segments that are given up."""
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

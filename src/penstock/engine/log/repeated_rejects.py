"""Counts the rejects of this run that an earlier run rejected already, so that the limit on rejects
(``max_rejected``) does not count a record twice.

A source whose cursor is inclusive sends its newest records in each run. If one of them is rejected,
a run without news has no other record, and would fail for it each time. The same record has the
same bytes, and an earlier run saved a state after it: a reject that a run gave up does not count
here.
Neighbours: ``engine.log.kept_rejects`` wrote the files, ``engine.deliver.reject_limits`` judges.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.engine.log.rejects import RejectLine, decode_rejects, kept_name
from penstock.engine.log.retries import given_up, given_up_folder
from penstock.model.catalog import StreamId
from penstock.model.segments import Segment
from penstock.tasks.storage import storage

_COMPARED = 10_000  # rejects of a stream; with more, none counts as repeated
_SEARCHED = 256 << 20  # bytes of earlier files, newest first


class EarlierRejects(NamedTuple):
    """The rejects of earlier runs. ``log``: the pipeline's, which lists those that runs gave up.
    ``folders``: newest first. ``floors``: stream, or None for all -> the last epoch before its
    state was reset, up to which none counts."""

    log: Path
    folders: Sequence[Path]
    floors: Mapping[StreamId | None, int]


class RepeatedRejects:
    """Compares with earlier runs. ``root``: of the log that the run seals into. ``earlier``: finds
    their rejects."""

    def __init__(self, root: Path, earlier: Callable[[], EarlierRejects]) -> None:
        self._root, self._earlier = root, earlier

    def count(self, stream: StreamId, segments: Sequence[Segment]) -> int:
        """Returns how many of the rejects of the stream in these segments are the same as one that
        an earlier run kept, whose source was not to send it again. A damaged file of an earlier run
        has none. Raises ``LogError`` where a file of the log cannot be read."""
        own = [path for s in segments for path in s.rejects if path.endswith(".jsonl")]
        left = Counter[str]()
        for path in own:
            with storage(self._root / path, "read"):
                left.update(_bodies(self._root / path, stream))
            if left.total() > _COMPARED:
                return 0
        found = 0
        names = {kept_name(path) for path in own}
        for path in self._files(stream, names) if left else ():
            try:
                bodies = Counter(body for body in _bodies(path, stream) if body in left)
            except (OSError, msgspec.DecodeError):
                continue
            again = left & bodies
            found += again.total()
            left -= again
            if not left:
                break
        return found

    def _files(self, stream: StreamId, own: set[str]) -> Iterator[Path]:
        """Yields the files of earlier runs, newest first, that may have rejects of the stream,
        without copies of ``own`` and without those that a run gave up of this stream."""
        earlier, size = self._earlier(), 0
        floor = max(earlier.floors.get(None, 0), earlier.floors.get(stream, 0))
        own = own if earlier.log == self._root else set()  # a dry run has its own numbers
        marks = given_up(given_up_folder(earlier.log))
        for folder in earlier.folders:
            gone = marks | given_up(folder)
            for path in sorted(folder.glob("*.jsonl"), reverse=True):
                again = stream.key in gone.get(path.name, ()) or path.name in own
                if not again and int(path.name.partition("-")[0]) > floor:
                    size += path.stat().st_size
                    if size > _SEARCHED:
                        return
                    yield path


def _bodies(path: Path, stream: StreamId) -> Iterator[str]:
    """Yields the bytes, as text, of a file's rejects of a stream."""
    of = (stream.namespace, stream.name)
    lines: Iterator[RejectLine] = decode_rejects(path.read_bytes()) if path.exists() else iter(())
    return (line.body for line in lines if (line.namespace, line.name) == of and line.file is None)

"""Rejects of a push: what the destination put aside, in files of the mailbox until they are kept.

One JSON line a reject, written as they come, so that their number has no bound; a file is durable
before the ack that it goes with is written, and named in it: ``mailbox/RUN/push/rejects-NUMBER-N
.jsonl``. Neighbours: ``engine.worker.feeder`` writes, ``engine.log.kept_rejects`` copies them to
the run's folder, ``engine.log.rejects`` knows what a line holds.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from penstock.engine.log.log import storage
from penstock.engine.log.rejects import RejectLine, encode_rejects
from penstock.files import private, sync, sync_file
from penstock.model.catalog import StreamId
from penstock.model.events import Reject

Taken = tuple[tuple[str, ...], tuple[tuple[StreamId, int], ...]]


class PushRejects:
    """``root``: the log's. ``folder``: in it."""

    def __init__(self, root: Path, folder: Path, number: int) -> None:
        self._root, self._folder, self._number = root, folder, number
        self._files = 0
        self._open: IO[bytes] | None = None
        self._counts: dict[StreamId, int] = {}

    def add(self, reject: Reject) -> None:
        """Raises ``LogError``."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = RejectLine.of(reject.stream, reject.reason, reject.field, reject.raw, now)
        with storage(self._path(), "write"):
            if self._open is None:
                self._open = private(self._path(), "wb")
            self._open.write(encode_rejects([line]))
        if reject.stream is not None:
            self._counts[reject.stream] = self._counts.get(reject.stream, 0) + 1

    def take(self) -> Taken:
        """The files since the last call, durable, as paths in the log, and how many rejects of each
        stream are in them. Raises ``LogError``."""
        if self._open is None:
            return (), ()
        path, file = self._path(), self._open
        with storage(path, "write"):
            with file:
                sync_file(file)
            sync(self._folder)
        self._open = None
        self._files += 1
        counts, self._counts = self._counts, {}
        return (str(path.relative_to(self._root)),), tuple(sorted(counts.items()))

    def _path(self) -> Path:
        return self._folder / f"rejects-{self._number}-{self._files + 1}.jsonl"

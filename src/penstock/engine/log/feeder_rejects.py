"""Writes the rejects of a destination connector into files of the run's mailbox.

One JSON line a reject, written as it is received, so that their number is not bound by memory. A
file is synced before the ack that names it is written: ``mailbox/RUN/push/rejects-NUMBER-N.jsonl``.
Neighbours: ``engine.worker.feeder`` writes, ``engine.log.kept_rejects`` copies them to the run's
folder, ``engine.log.rejects`` defines a line.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from penstock.engine.log.rejects import RejectLine, encode_rejects
from penstock.files import private, sync, sync_file
from penstock.model.catalog import StreamId
from penstock.model.events import Reject
from penstock.tasks.storage import storage

Taken = tuple[tuple[str, ...], tuple[tuple[StreamId, int], ...]]


class PushRejects:
    """Collects the rejects of one push task. ``root``: the log's folder. ``folder``: the task's
    mailbox folder, below ``root``. ``number``: of the task's ``PushJob``."""

    def __init__(self, root: Path, folder: Path, number: int) -> None:
        self._root, self._folder, self._number = root, folder, number
        self._files = 0
        self._open: IO[bytes] | None = None
        self._counts: dict[StreamId, int] = {}

    def add(self, reject: Reject) -> None:
        """Appends a reject to the open file. Raises ``LogError``."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = RejectLine.of(
            reject.stream, reject.reason, reject.field, reject.raw, now, key=reject.key
        )
        with storage(self._path(), "write"):
            if self._open is None:
                self._open = private(self._path(), "wb")
            self._open.write(encode_rejects([line]))
        records = 1 if reject.records is None else reject.records
        if reject.stream is not None and records:
            self.count(reject.stream, records)

    def count(self, stream: StreamId, rows: int) -> None:
        """Counts rejects, which need not be in a file."""
        self._counts[stream] = self._counts.get(stream, 0) + rows

    def take(self) -> Taken:
        """Closes and syncs the open file. Returns the files since the last call, as paths relative
        to the log, and the number of rejects since then per stream. Raises ``LogError``."""
        counts, self._counts = self._counts, {}
        return self._closed(), tuple(sorted(counts.items()))

    def _closed(self) -> tuple[str, ...]:
        if self._open is None:
            return ()
        path, file = self._path(), self._open
        with storage(path, "write"):
            with file:
                sync_file(file)
            sync(self._folder)
        self._open = None
        self._files += 1
        return (str(path.relative_to(self._root)),)

    def _path(self) -> Path:
        return self._folder / f"rejects-{self._number}-{self._files + 1}.jsonl"

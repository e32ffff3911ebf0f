"""Copies reject files from the log to the run's folder, where users query them (L8).

Not here: when to copy (``engine.sync.sync``, ``engine.deliver``), what a line holds
(``engine.log.rejects``).
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock.engine.log.rejected_keys import RejectedKeys
from penstock.engine.log.rejects import decode_rejects, encode_rejects, kept_name
from penstock.engine.log.retries import RETRIED, given_up_folder, mark_given_up
from penstock.files import make_folder, replacing, sync, sync_file
from penstock.model.segments import ConsumedSlice, Segment
from penstock.tasks.storage import storage


class RejectsKeeper:
    """Copies reject files. ``root``: the log's folder. ``folder``: of the run; None (a dry run):
    copy nothing. ``note``: called with a warning for the report. ``keys``: records the rows that
    are to be retried; None: there are none. ``tried``: stores ids of retried rejects, given the
    name of their file, before the log deletes them."""

    def __init__(
        self,
        root: Path,
        folder: Path | None,
        note: Callable[[str], None],
        keys: RejectedKeys | None = None,
        *,
        tried: Callable[[str, Sequence[str]], None] = lambda name, ids: None,
    ) -> None:
        self._root, self._folder, self._note, self._keys = root, folder, note, keys
        self._tried = tried

    def give_up(self, segments: Iterable[Segment], items: Iterable[ConsumedSlice]) -> None:
        """Records, before these shares of segments are given up, that their source sends them
        again, so that their rejects are not retried as well (``engine.log.retries``)."""
        if self._folder is not None:
            mark_given_up(given_up_folder(self._root), segments, items)

    def keep(self, segment: Segment) -> None:
        """Copies the rejects of a segment, and notes each missing file. Each copy is renamed into
        place under a unique name, so that a repetition changes nothing; all are durable on return,
        since the log then deletes its own. Rejects that no state covers are sent again by their
        source. Raises ``LogError``."""
        if not segment.exact:
            self.give_up([segment], [ConsumedSlice(segment.id, s.stream) for s in segment.slices])
        for source in self.keep_files(segment.rejects, [segment.id.epoch]):
            self._missed(segment, source)

    def keep_files(self, paths: Sequence[str], epochs: Sequence[int]) -> list[Path]:
        """Copies files of the log as :meth:`keep` does. ``epochs``: possible epochs of their
        records. Returns those that are neither in the log nor in the run's folder."""
        folder = self._folder
        missed: list[Path] = []
        if not paths or folder is None:
            return missed
        with storage(folder, "write rejects to"):
            make_folder(folder, 0o700)
            for path in paths:
                target, source = folder / kept_name(path), self._root / path
                if source.suffix == RETRIED and source.exists():
                    self._tried(target.name, source.read_text().split())
                if source.exists() and not target.exists():
                    if self._keys is not None and source.suffix == ".jsonl":
                        _recorded(source, target, self._keys, epochs)
                    else:
                        _copy(source, target)
                elif not source.exists() and not target.exists():
                    missed.append(source)
            sync(folder)
        return missed

    def _missed(self, segment: Segment, source: Path) -> None:
        """Notes a missing reject file, unless an earlier run copied and discarded it. A manifest
        stays until its last segment is discarded, and parts are deleted before rejects. So the file
        is missing without reason only where the segment still has a part."""
        parts = (p.path for s in segment.slices for p in s.parts)
        if any((self._root / path).exists() for path in parts):
            self._note(f"the log's file {source} is gone: the rejects in it cannot be shown")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as whole, replacing(target) as copy:
        shutil.copyfileobj(whole, copy, 1 << 20)
        sync_file(copy)


def _recorded(source: Path, target: Path, keys: RejectedKeys, epochs: Sequence[int]) -> None:
    """Copies a file, after recording its keys. The copied lines have the number of their
    attempt."""
    with source.open("rb") as whole, replacing(target) as copy:
        lines = (line for raw in whole for line in decode_rejects(raw))
        for line in keys.record(lines, epochs):
            copy.write(encode_rejects([line]))
        sync_file(copy)

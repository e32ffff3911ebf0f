"""Copies reject files from the log to the run's folder, where users query them (L8).

Not here: when to copy (``engine.sync.sync``, ``engine.deliver``), what a line holds
(``engine.log.rejects``).
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.engine.log.log import storage
from penstock.engine.log.rejects import kept_name
from penstock.files import replacing, sync, sync_file
from penstock.model.segments import Segment


class RejectsKeeper:
    """Copies reject files. ``root``: the log's folder. ``folder``: of the run; None (a dry run):
    copy nothing. ``note``: is called with a warning for the report."""

    def __init__(self, root: Path, folder: Path | None, note: Callable[[str], None]) -> None:
        self._root, self._folder, self._note = root, folder, note

    def keep(self, segment: Segment) -> None:
        """Copies the rejects of a segment, and notes each file that is missing. Each copy is
        renamed into place under a unique name, so that a repetition changes nothing; all are
        durable on return, since the log then deletes its own. Raises ``LogError``."""
        for source in self.keep_files(segment.rejects):
            self._missed(segment, source)

    def keep_files(self, paths: Sequence[str]) -> list[Path]:
        """Copies files of the log as :meth:`keep` does. Returns those that are neither in the log
        nor in the run's folder."""
        folder = self._folder
        missed: list[Path] = []
        if not paths or folder is None:
            return missed
        with storage(folder, "write rejects to"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in paths:
                target, source = folder / kept_name(path), self._root / path
                if source.exists() and not target.exists():
                    _copy(source, target)
                elif not source.exists() and not target.exists():
                    missed.append(source)
            sync(folder)
        return missed

    def _missed(self, segment: Segment, source: Path) -> None:
        """Notes a missing reject file, unless an earlier run copied and discarded it. A manifest
        stays until its last segment is discarded, and parts are deleted before rejects: only where
        the segment still has a part is the file missing without reason."""
        parts = (p.path for s in segment.slices for p in s.parts)
        if any((self._root / path).exists() for path in parts):
            self._note(f"the log's file {source} is gone: the rejects in it cannot be shown")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as whole, replacing(target) as copy:
        shutil.copyfileobj(whole, copy, 1 << 20)
        sync_file(copy)

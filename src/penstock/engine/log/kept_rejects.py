"""Rejects leave the log for the run's folder, where users query them (L8).

Neighbours: ``engine.sync.sync`` says when, ``engine.log.rejects`` knows what a line holds.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.engine.log.log import storage
from penstock.engine.log.rejects import kept_name
from penstock.files import replacing, sync, sync_file
from penstock.model.segments import Segment


class RejectsKeeper:
    """``root``: the log's. ``folder``: where they go; None: nowhere (a dry run)."""

    def __init__(self, root: Path, folder: Path | None, note: Callable[[str], None]) -> None:
        self._root, self._folder, self._note = root, folder, note

    def keep(self, segment: Segment) -> None:
        """Copied under a name of their own and renamed: repeating it changes nothing. Durable when
        it returns, for the log drops its own. Raises ``LogError``."""
        for source in self.keep_files(segment.rejects):
            self._missed(segment, source)

    def keep_files(self, paths: Sequence[str]) -> list[Path]:
        """As :meth:`keep`, of files of the log; gives those that are in neither place."""
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
        """Rejects that are in neither place: an earlier run kept and discarded them (a manifest
        lives as long as any segment of it), unless the segment still has a part: parts go first."""
        parts = (p.path for s in segment.slices for p in s.parts)
        if any((self._root / path).exists() for path in parts):
            self._note(f"the log's file {source} is gone: the rejects in it cannot be shown")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as whole, replacing(target) as copy:
        shutil.copyfileobj(whole, copy, 1 << 20)
        sync_file(copy)

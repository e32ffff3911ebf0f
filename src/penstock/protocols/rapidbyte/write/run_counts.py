"""Compares the counters of a destination's run with the rows that the run was given. Pure.

A summary whose run ended well may still say that rows were not written (L8): v4's own Postgres
destination skips rows that it takes for written before, and its older builds leave out rows that
the server refuses. Upserts may count rows that were merged, so that a smaller number proves
nothing there. Components that leave a counter at zero are taken at their word of success.
Neighbour: ``answers`` acts on the result. Source: the protocol's ``write-summary``.
"""

from dataclasses import dataclass

from penstock.protocols.rapidbyte.wire.messages import RunSummary


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counters of one run that ended well, in records. ``given``: what it was fed; ``refused``:
    the records with dead letters, those of equal text as one; ``alike``: dead letters that are
    equal to others, each of which may be a record; ``written``, ``failed``: as it says. ``counts``:
    ``written`` is in use."""

    given: int
    refused: int
    alike: int
    written: int
    failed: int
    counts: bool

    @staticmethod
    def of(
        summary: RunSummary, given: int, refused: int, alike: int, *, counted: bool
    ) -> "RunCounts":
        """``counted``: an earlier run of the component used its counters. A run that wrote no
        record, batch or byte, and counts its checkpoints, shows that it wrote nothing."""
        found = summary.counts
        written, failed = found["records_written"], found["records_failed"]
        nothing = not (found["batches_written"] or found["bytes_written"])
        used = written > 0 or failed > 0 or counted or (nothing and found["checkpoint_count"] > 0)
        return RunCounts(given, refused, alike, written, failed, used)

    @property
    def unlisted(self) -> int:
        """Records that it failed to write and of which it gave no dead letter."""
        return max(0, self.failed - self.refused - self.alike)

    @property
    def equal(self) -> int:
        """Records that it failed to write and whose dead letter is equal to another's."""
        return min(max(0, self.failed - self.refused), self.alike)

    @property
    def missing(self) -> int:
        """Records that were neither written nor failed; 0 where it does not count."""
        if not self.counts:
            return 0
        return max(0, self.given - self.written - max(self.failed, self.refused))

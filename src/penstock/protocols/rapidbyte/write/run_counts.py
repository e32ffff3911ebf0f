"""Compares the counters of a destination's run with the rows of its input. Pure.

The summary of a run that ended well may still count unwritten rows (L8): v4's own Postgres
destination skips rows that it takes for already written, and its older builds omit rows that the
server refuses. Upserts may count merged rows, so a smaller number proves nothing there. For a
component that leaves a counter at zero, its success is trusted. Neighbour: ``answers`` acts on the
result. Source: the protocol's ``write-summary``.
"""

from dataclasses import dataclass

from penstock.protocols.rapidbyte.wire.messages import RunSummary


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counters of one run that ended well, in records. ``given``: its input; ``refused``: the
    records with dead letters, those with equal text as one; ``alike``: dead letters that are equal
    to others, each of which may be a record; ``written``, ``failed``: as reported. ``counts``:
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
        """Builds the counters. ``counted``: an earlier run of the component used its counters. A
        run without a written record, batch or byte, but with counted checkpoints, shows that it
        wrote nothing."""
        found = summary.counts
        written, failed = found["records_written"], found["records_failed"]
        nothing = not (found["batches_written"] or found["bytes_written"])
        used = written > 0 or failed > 0 or counted or (nothing and found["checkpoint_count"] > 0)
        return RunCounts(given, refused, alike, written, failed, used)

    @property
    def unlisted(self) -> int:
        """The number of records that it failed to write without a dead letter."""
        return max(0, self.failed - self.refused - self.alike)

    @property
    def equal(self) -> int:
        """The number of records that it failed to write with a dead letter equal to another's."""
        return min(max(0, self.failed - self.refused), self.alike)

    @property
    def missing(self) -> int:
        """The number of records that were neither written nor failed; 0 where it does not count."""
        if not self.counts:
            return 0
        return max(0, self.given - self.written - max(self.failed, self.refused))

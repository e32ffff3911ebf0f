"""Counts the records of a stream that yield no row at a stage's output, and marks them as filtered.

Where the source record of a row is unknown, only the numbers decide: as many records are left out
as rows went into the stage without a result, and never more than the records that the stage's
output rows cannot stand for. So a transform that makes many rows from one record hides as many
left-out ones. Pure. Neighbours: ``connector`` and ``builtin`` are the stages; the sealer counts
what they marked (L8).
"""

from dataclasses import dataclass

from penstock.model.events import Batch


@dataclass(slots=True)
class LeftOut:
    """The counts of one stream so far. ``given``: rows that the stage has finished; ``made``: rows
    made from them; ``refused``: rejects of these rows, each in place of one; ``owed``: rejects
    before the stage whose records are unknown."""

    given: int = 0
    made: int = 0
    refused: int = 0
    owed: int = 0
    _records: int = 0
    _filtered: int = 0

    def mark(self, count: Batch) -> None:
        """Takes a count of source records, all of whose rows have passed the stage, and adds those
        that were left out to its ``filtered``."""
        here = count.read - count.filtered
        self._records += here
        used = self.made + self.refused
        lost = min(self.given - used, self._records - used - self.owed) - self._filtered
        lost = max(0, min(lost, here))
        self._filtered += lost
        count.filtered += lost

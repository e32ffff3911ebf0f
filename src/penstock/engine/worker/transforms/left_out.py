"""Counts the records of a stream of which no row comes out of a stage, and marks them as filtered.

Where nothing says which record a row was made from, only the numbers tell: as many records are
left out as rows went into the stage and came to nothing, and never more than the records that the
rows after the stage cannot stand for. So a transform that makes many rows of one record hides as
many that it leaves out. Pure. Neighbours: ``connector`` and ``builtin`` are the stages; the sealer
counts what they marked (L8).
"""

from dataclasses import dataclass

from penstock.model.events import Batch


@dataclass(slots=True)
class LeftOut:
    """The counts of one stream so far. ``given``: rows that the stage is done with; ``made``: rows
    that came of them; ``refused``: rejects of these rows, each in place of one; ``owed``: rejects
    before the stage whose records are not known."""

    given: int = 0
    made: int = 0
    refused: int = 0
    owed: int = 0
    _records: int = 0
    _filtered: int = 0

    def mark(self, count: Batch) -> None:
        """Takes a count of source records, all of whose rows were given and have come out, and
        adds those that were left out to its ``filtered``."""
        here = count.read - count.filtered
        self._records += here
        used = self.made + self.refused
        lost = min(self.given - used, self._records - used - self.owed) - self._filtered
        lost = max(0, min(lost, here))
        self._filtered += lost
        count.filtered += lost

"""Compares a destination's own counts with the rows that it was fed: rejected rows, and rows that
it does not account for (L8).

Pure. Some destinations report only such numbers. Neighbours: ``engine.worker.feeder`` calls,
``engine.log.feeder_rejects`` counts and keeps rejects.
"""

from collections.abc import Iterator

from penstock.model.catalog import StreamId
from penstock.protocols.writing import DestinationCounts

_SHOWN = 5


class CountedRows:
    """The counts of one conversation."""

    def __init__(self) -> None:
        self._rejected: dict[StreamId, int] = {}
        self._whose: dict[tuple[StreamId, ...], int] = {}  # rejected rows, of one of the streams
        # rows fed, written, rejected, where these do not add up
        self._differs: dict[tuple[StreamId, ...], tuple[int, int, int]] = {}

    def rejected(self, counts: DestinationCounts) -> Iterator[tuple[StreamId, int]]:
        """Yields how many rows of each stream were certainly rejected: all rejected rows, if only
        one stream was fed."""
        streams, total = tuple(sorted(counts.fed)), sum(counts.fed.values())
        rejected = min(counts.rejected, total)
        if counts.written is not None and counts.written + counts.rejected != total:
            fed, written, aside = self._differs.get(streams, (0, 0, 0))
            self._differs[streams] = (
                fed + total,
                written + counts.written,
                aside + counts.rejected,
            )
        known = 0
        for stream, rows in counts.fed.items():
            certain = max(rejected - (total - rows), 0)
            if certain:
                known += certain
                self._rejected[stream] = self._rejected.get(stream, 0) + certain
                yield stream, certain
        if rejected > known:
            self._whose[streams] = self._whose.get(streams, 0) + rejected - known

    def notes(self) -> list[str]:
        """Returns the notes for the report."""
        notes = [
            f"{stream}: the destination rejected {rows:,} rows, and reports only their number"
            for stream, rows in self._rejected.items()
        ]
        notes += [
            f"the destination rejected {rows:,} rows, and does not report their stream: they count"
            f" as committed ({_listed(streams)})"
            for streams, rows in self._whose.items()
        ]
        notes += [
            f"{_listed(streams)}: the destination reports that it wrote {written:,} rows and "
            "rejected"
            f" {rejected:,}, and was sent {fed:,} before these states"
            for streams, (fed, written, rejected) in self._differs.items()
        ]
        return notes


def _listed(streams: tuple[StreamId, ...]) -> str:
    more = ", ..." if len(streams) > _SHOWN else ""
    return (", ".join(map(str, streams[:_SHOWN])) or "no stream") + more

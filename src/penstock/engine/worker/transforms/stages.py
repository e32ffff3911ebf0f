"""Puts a lane's transforms between its source and the sealer: takes the source's events, yields the
events of the transformed rows.

Built-in transforms that follow each other are one stage, a transform connector is one by itself; a
stage takes the events of the one before it. Events other than records keep their place, so that a
state covers exactly the rows made from the records before it. Neighbours: ``engine.worker.lane``
uses it; ``builtin`` and ``connector`` do the work, ``engine.worker.row_decoding`` gives the
columns.
"""

from collections.abc import Callable, Generator, Iterator

from penstock.connectors.launch import Launch
from penstock.engine.specs.lane import LaneJob, StreamJob
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.engine.worker.transforms.builtin import BuiltInStage
from penstock.engine.worker.transforms.connector import ComponentStage
from penstock.model.events import ConnectorMetrics, Event
from penstock.model.types import RowSchema
from penstock.protocols.connection import Connection
from penstock.transforms.chain import stages


class Transforming:
    """The transforms of one lane. ``connect``: connects to a transform connector. ``tick``: see
    ``BuiltInStage``."""

    def __init__(
        self,
        job: LaneJob,
        streams: StreamDecoders,
        connect: Callable[[Launch], Connection],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._stages: list[BuiltInStage | ComponentStage] = []
        given: Callable[[StreamJob], RowSchema] = _of_records
        number = 0
        groups = list(stages(job.transforms))
        for place, (connector, transforms) in enumerate(groups):
            stage: BuiltInStage | ComponentStage
            if connector:
                stage = ComponentStage(transforms[0], job, streams, given, place, number, connect)
                number += 1
            else:
                last = place == len(groups) - 1
                stage = BuiltInStage(
                    transforms, streams, given, place,
                    last=last, open=job.open, tick=tick, of_records=place == 0 and job.has_records,
                )  # fmt: skip
            self._stages.append(stage)
            given = stage.schema

    def events(self, events: Iterator[Event]) -> Generator[Event]:
        """Yields the events of the transformed rows. Closing the generator ends every transform;
        ``events`` itself is the caller's to close."""
        through = _generator(events)
        for stage in self._stages:
            through = stage.events(through)
        return through

    def measured(self) -> list[ConnectorMetrics]:
        """Returns the counts of the built-in transforms, stream by stream."""
        built_in = (stage for stage in self._stages if isinstance(stage, BuiltInStage))
        return [one for stage in built_in for one in stage.measured()]


def _of_records(job: StreamJob) -> RowSchema:
    return job.schema if job.given is None else job.given


def _generator(events: Iterator[Event]) -> Generator[Event]:
    yield from events

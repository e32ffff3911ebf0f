"""Transforms in a lane: a source's events go in, the events of what was made of them come out.

Built-in transforms that follow each other are one stage, a transform that is a connector is one by
itself; a stage takes the events of the one before it. What is no record passes in its place, so
that a state covers exactly what was made of the records before it. Neighbours: ``engine.child``
stands this between a source and the sealer; ``builtin_stage`` and ``component_stage`` do the work,
``engine.decoding`` gives the columns.
"""

from collections.abc import Callable, Generator, Iterator

from penstock.engine.builtin_stage import BuiltInStage
from penstock.engine.chain import stages
from penstock.engine.component_stage import ComponentStage
from penstock.engine.decoding import Streams
from penstock.engine.job import LaneJob, StreamJob
from penstock.model.events import Event, Measured
from penstock.model.types import RowSchema
from penstock.runtimes.wasm.component import OpenKeys


class Transforming:
    """Of one lane. ``log_stderr``, ``keys``: of transforms that are connectors."""

    def __init__(
        self,
        job: LaneJob,
        streams: Streams,
        log_stderr: Callable[[str], None] | None = None,
        keys: OpenKeys | None = None,
    ) -> None:
        self._stages: list[BuiltInStage | ComponentStage] = []
        given: Callable[[StreamJob], RowSchema] = _of_records
        number = 0
        for place, (connector, told) in enumerate(stages(job.transforms)):
            stage: BuiltInStage | ComponentStage
            if connector:
                stage = ComponentStage(
                    told[0], job, streams, given, place, number, log_stderr=log_stderr, keys=keys
                )
                number += 1
            else:
                stage = BuiltInStage(told, streams, given, place, open=job.open)
            self._stages.append(stage)
            given = stage.schema

    def events(self, events: Iterator[Event]) -> Generator[Event]:
        """What comes of these events. Closing it ends what it runs; ``events`` is the caller's."""
        through = _generator(events)
        for stage in self._stages:
            through = stage.events(through)
        return through

    def measured(self) -> list[Measured]:
        """What transforms counted, stream by stream, and said of their progress."""
        return [told for stage in self._stages for told in stage.measured()]


def _of_records(job: StreamJob) -> RowSchema:
    return job.schema if job.given is None else job.given


def _generator(events: Iterator[Event]) -> Generator[Event]:
    yield from events

"""What a lane's source says, event by event: records are counted and go to the sealer, the driver
is asked how a stream goes on, and what the report tells is kept.

Not here: the process, and what may stop it (``engine.child``); what a state covers
(``engine.sealer``). Neighbours: ``engine.mailbox`` carries the questions, ``engine.planner``
answers them.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.engine.decoding import Streams
from penstock.engine.events_log import EventLog
from penstock.engine.job import LaneJob, StreamAnswer, StreamJob
from penstock.engine.mailbox import Ask, Mailbox, NewConfig
from penstock.engine.sealer import Sealer
from penstock.errors import PenstockError, SourceError
from penstock.model.catalog import StreamId
from penstock.model.events import (
    Activate,
    Batch,
    Control,
    Counted,
    Error,
    Estimate,
    Event,
    Exited,
    Log,
    Measured,
    Reject,
    Schema,
    State,
    StreamStatus,
    Tick,
)

ASK_SECONDS = 0.05
KEPT = "what it had finished is kept; run again to go on from the saved state"
_OURS = ("code", "hint", "where")


class LaneEvents:
    """Of one epoch. ``between``: called while the driver's answer is waited for; raises where the
    lane is to stop. ``read``: records of each stream. ``exit``: how the source ended."""

    def __init__(
        self,
        job: LaneJob,
        mailbox: Mailbox,
        said: EventLog,
        streams: Streams,
        between: Callable[[Sealer], None],
    ) -> None:
        self._job, self._mailbox, self._said = job, mailbox, said
        self._streams, self._between = streams, between
        self.read = {s.id: 0 for s in job.streams}
        self._bytes = {s.id: 0 for s in job.streams}
        self._estimates: dict[StreamId, int] = {}
        self._counted: dict[str, int] = {}
        self.metrics: list[dict[str, Any]] = []
        self.retries: dict[StreamId, float] = {}
        self.errors: list[PenstockError] = []
        self.exit: Exited | None = None
        self._configs, self._asked = 0, 0
        self._versions: dict[StreamId, int] = {}
        self._states: int | None = None
        if job.served:
            path = mailbox.states_path(job.epoch)
            self._states = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def take(self, event: Event, sealer: Sealer) -> None:
        match event:
            case Batch() if event.stream not in self._streams.jobs:
                self._count(f"stream_not_configured:{event.stream}", len(event.bodies))
            case Batch():
                self._turn(event.stream, event.version, sealer)
                batch = self._within_limit(event)
                self.read[batch.stream] += batch.read
                self._bytes[batch.stream] += batch.size
                if batch.read or len(batch.bodies) or batch.keys:
                    sealer.batch(batch)
            case State():
                if event.scope.stream is None and not self._job.shared_states:
                    raise SourceError(
                        "the source shares one state between its streams: they cannot be read in "
                        "several lanes",
                        code="source.shared_state",
                        hint="set `lanes: 1`",
                    )
                if self._states is not None:
                    line = msgspec.json.encode([event.scope.key, event.blob])
                    os.write(self._states, line + b"\n")
                sealer.state(event)
            case Schema():
                self._retold(event, sealer)
            case Activate():
                self._activated(event, sealer)
            case Tick():
                sealer.tick()
            case StreamStatus():
                sealer.status(event)
            case Reject():
                if event.stream in self.read:
                    self.read[event.stream] += event.records or 0
                sealer.reject(event)
            case Control():
                self._configs += 1
                new = NewConfig(self._job.config_hash, event.config)
                self._mailbox.put_config(self._job.epoch, self._configs, new)
            case Estimate():
                if event.stream is not None and event.rows is not None:
                    self._estimates[event.stream] = event.rows
            case Log():
                said = (event.message, event.stack_trace)
                self._said.log(event.level, "\n".join(text for text in said if text))
            case Error():
                self._said.log("ERROR", event.message)
                self.errors.append(source_error(event))
                if event.stream is not None and event.retry is not None:
                    self.retries[event.stream] = event.retry
            case Counted():
                self._count(event.what, event.count)
            case Measured():
                self.metrics.append(measured(event))
            case Exited():
                self.exit = event

    def progress(self) -> list[tuple[str, int, int, int | None]]:
        """Streams of which something was read, for ``mailbox.Progress``."""
        return [
            (s.key, n, self._bytes[s], self._estimates.get(s)) for s, n in self.read.items() if n
        ]

    def notes(self) -> list[str]:
        notes = [f"{what}: {n}" for what, n in sorted(self._counted.items())]
        if self._said.lost:
            notes.append(f"lines of the log that could not be written: {self._said.lost}")
        return [*notes, *self._streams.notes()]

    def _count(self, what: str, count: int) -> None:
        self._counted[what] = self._counted.get(what, 0) + count

    def _retold(self, told: Schema, sealer: Sealer) -> None:
        """A schema that the driver has not heard of: it says how the stream goes on. Records wait
        meanwhile. A stream that is not wanted stays unknown."""
        answer = self._asking(
            Ask(
                number=self._asked + 1,
                stream=told.stream,
                json_schema=told.json_schema,
                primary_key=told.primary_key,
                cursor_field=told.cursor_field,
                version=self._versions.get(told.stream),
                showed=told.showed,
            ),
            sealer,
        )
        if answer is not None:
            sealer.stream(answer.lane)
            self._streams.learn(answer)
            self.read.setdefault(told.stream, 0)
            self._bytes.setdefault(told.stream, 0)

    def _asking(self, ask: Ask, sealer: Sealer) -> StreamJob | None:
        self._asked = ask.number
        self._mailbox.put_ask(self._job.epoch, ask)
        while (raw := self._mailbox.answer(self._job.epoch, ask.number)) is None:
            time.sleep(ASK_SECONDS)
            self._between(sealer)
        answer = msgspec.json.decode(raw, type=StreamAnswer)
        if answer.error is not None:
            raise PenstockError.from_dict(answer.error)
        return answer.stream

    def _turn(self, stream: StreamId, version: int | None, sealer: Sealer) -> None:
        """Records of another version begin. A full refresh is one version by itself."""
        job = self._streams.jobs[stream]
        if (
            version is None
            or version == self._versions.get(stream)
            or job.configured.fills_generation
        ):
            return
        ask = Ask(number=self._asked + 1, stream=stream, version=version)
        answer = self._asking(ask, sealer)
        if answer is not None:
            self._versions[stream] = version
            self._streams.learn(answer)
            sealer.stream(answer.lane)

    def _activated(self, event: Activate, sealer: Sealer) -> None:
        """Before any row of its version it says nothing yet: the table keeps its rows until the new
        ones are all here, which a second one, or the source's good end, says (L6)."""
        stream = event.stream
        job = self._streams.jobs.get(stream)
        if job is None or not self.read[stream]:
            return
        if job.configured.fills_generation:
            sealer.complete(stream)
            return
        lane = job.lane
        came = event.version == self._versions.get(stream)  # rows of it, in this epoch
        if came and lane.fills_generation and lane.version == event.version:
            live = msgspec.structs.replace(lane, fills_generation=False, must_say=False)
            sealer.activate(live)
            self._streams.learn(msgspec.structs.replace(job, lane=live))

    def _within_limit(self, batch: Batch) -> Batch:
        """Its first records, as many as ``limit`` leaves."""
        limit = self._job.limit
        left = len(batch.bodies) if limit is None else max(limit - self.read[batch.stream], 0)
        if left >= len(batch.bodies):
            return batch
        bodies = batch.bodies[:left]
        changes = {index: raw for index, raw in batch.changes.items() if index < left}
        size = sum(map(len, bodies))
        return Batch(batch.stream, bodies, batch.extracted_at[:left], changes, size)


def source_error(event: Error) -> PenstockError:
    """A source's failure: in its own words, or a limit or a rule of ours that it broke (``raw`` has
    a ``code`` that begins with ``source.`` or ``transform.``, and maybe a ``hint``, a ``where`` and
    the ``connector``'s fields)."""
    code, hint = event.raw.get("code"), event.raw.get("hint")
    own = "category" in event.raw  # the connector's own error, which has a code of its own
    ours = isinstance(code, str) and code.startswith(("source.", "transform.")) and not own
    if not ours:
        code = f"source.{event.failure_type or 'failed'}"
    told = {k: v for k, v in event.raw.items() if not (ours and k in _OURS)}
    return SourceError(
        event.message,
        code=code,
        hint=(hint or KEPT) if ours else None,
        where=event.raw.get("where") if ours else None,
        stream=None if event.stream is None else str(event.stream),
        connector=(told.get("connector", told) if ours else told) or None,
    )


def measured(event: Measured) -> dict[str, Any]:
    """For the report."""
    stream = None if event.stream is None else str(event.stream)
    return {"stream": stream, "series": event.series}

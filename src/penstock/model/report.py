"""Defines the report of a run: exactly the JSON that the command-line contract (docs/cli.md)
publishes, and its form in a notebook."""

from html import escape
from typing import Any, Literal

import msgspec

from penstock.model.catalog import StreamId

RunStatus = Literal["succeeded", "partial", "failed", "cancelled"]
StreamOutcome = Literal["complete", "incomplete", "failed"]


class StreamReport(msgspec.Struct, kw_only=True):
    """One stream's part of the report. ``read = committed + rejected + filtered`` if ``status`` is
    ``complete`` (L8).

    ``table``: the location of its rows. For a destination connector ``table`` is None and
    ``target`` is the stream's name there; then ``written`` counts the rows sent to the connector in
    this run, ``committed`` those that it acked, ``sent_again`` those of ``written`` that an earlier
    run, or an earlier attempt of this one, had sent already. ``superseded``: rows of committed
    loads that a table left out, since another row of their key is newer. ``sealed``: rows that an
    unsuccessful run left in the log: the next run loads them.

    ``attempts``: how often the source was started for the stream in this run. ``expected_rows``,
    ``expected_bytes``: the source's estimate; None: it gave none. ``load_ways``: how many loads
    came into the table in which way (``tables.load_way``)."""

    namespace: str | None
    name: str
    status: StreamOutcome = "incomplete"
    read: int = 0
    committed: int = 0
    written: int = 0
    rejected: int = 0
    filtered: int = 0
    sent_again: int = 0
    superseded: int = 0
    sealed: int = 0
    bytes: int = 0
    states: int = 0
    lane: int = 0
    attempts: int = 0
    expected_rows: int | None = None
    expected_bytes: int | None = None
    table: str | None = None
    target: str | None = None
    load_ways: dict[str, int] = {}
    error: dict[str, Any] | None = None


class TimeSpent(msgspec.Struct, kw_only=True):
    """Wall seconds by stage of the run; the command-line contract defines what each one spans. They
    add up to the run's, but for ``source_wait`` and ``decode`` (parts of ``extract``),
    ``destination_wait`` (of ``load``), ``beside`` (of ``load``, while a lane ran too), ``tail``
    (all that came after the last lane), ``wall`` (the process's, from its start) and ``close``
    (what of that came after the run's seconds)."""

    install: float = 0.0
    prepare: float = 0.0
    discover: float = 0.0
    start: float = 0.0
    stage: float = 0.0
    lane: float = 0.0
    extract: float = 0.0
    source_wait: float = 0.0
    decode: float = 0.0
    load: float = 0.0
    beside: float = 0.0
    destination_wait: float = 0.0
    finish: float = 0.0
    tail: float = 0.0
    close: float = 0.0
    wall: float = 0.0


class PeakMemory(msgspec.Struct, kw_only=True):
    """The peak memory of the run's Python processes and of its JVM, in bytes."""

    python_peak_bytes: int = 0
    jvm_peak_bytes: int = 0


class LeftRejects(msgspec.Struct, frozen=True):
    """Rejects of a stream that were not retried, and why. ``stream`` None: unknown."""

    stream: str | None
    why: str
    rejects: int


class RetriedRejectsReport(msgspec.Struct, kw_only=True):
    """The result of ``penstock rejects retry``: how many rejects it retried, and which it left."""

    tried: int
    left: list[LeftRejects]


class Report(msgspec.Struct, kw_only=True):
    """The report of one run. ``metrics``: the connectors' own metrics, ``{"stream", "series"}``
    each. ``start``: whether Spark's JVM was running already (``warm``); None: there was none of
    ours. ``expected_rows``, ``expected_bytes``: the source's estimate for all streams together;
    None: it gave none. ``dry_run``: nothing was written, sent or saved, despite the counts (also
    ``--limit``). ``retried`` None: the run read its source."""

    run: str
    pipeline: str
    status: RunStatus
    exit_code: int
    started_at: str
    seconds: float
    guarantee: Literal["exactly-once", "at-least-once"]
    streams: list[StreamReport]
    time: TimeSpent
    memory: PeakMemory
    notes: list[str]
    start: Literal["warm", "cold"] | None = None
    metrics: list[dict[str, Any]] = []
    expected_rows: int | None = None
    expected_bytes: int | None = None
    error: dict[str, Any] | None
    log: str
    dry_run: bool = False
    retried: RetriedRejectsReport | None = None

    def _repr_html_(self) -> str:
        """Returns the report for notebooks: one table row per stream, failures, the notes."""
        columns = ("stream", "status", "read", "written", "rejected", "states", "into")
        rows = "".join(_html_row("td", _cells(stream)) for stream in self.streams)
        began = self.status == "succeeded" or any(s.read or s.written for s in self.streams)
        promised = f", {self.guarantee}" if began else ""
        lines = [f"{self.status} in {self.seconds:.1f} s{promised}"]
        lines += [str(self.error["message"])] if self.error else []
        lines += [f"note: {note}" for note in self.notes]
        lines.append(f"run {self.run} of pipeline {self.pipeline}")
        notes = "<br>".join(escape(line) for line in lines)
        return f"<table>{_html_row('th', columns)}{rows}</table><p>{notes}</p>"


def _cells(stream: StreamReport) -> tuple[object, ...]:
    name = str(StreamId(stream.namespace, stream.name))
    into = stream.table or stream.target or ""
    counts = (stream.read, stream.written, stream.rejected, stream.states)
    return name, stream.status, *(f"{count:,}" for count in counts), into


def _html_row(tag: str, cells: "tuple[object, ...]") -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

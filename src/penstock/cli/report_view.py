"""Formats a run's report as text: the streams, the totals, where the time went."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.report import Report
from penstock.terminal import format as text
from penstock.terminal.traces import without_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.engine.run.run_all import PipelineResult

_SHOWN = 50
_MARKS = {"succeeded": ("✓", "green"), "partial": ("!", "yellow")}


def report_text(
    report: "Report | Mapping[str, Any]", *, error_follows: bool = False
) -> "Iterator[RenderableType]":
    """Yields the text of a :class:`Report`, or of a stored one (figures may be missing if the run
    died). ``error_follows``: the caller prints the report's error with its hint, so the stream's
    line of the same error is left out."""
    from rich.text import Text

    fields: dict[str, Any] = msgspec.to_builtins(report)
    streams: list[dict[str, Any]] = fields["streams"]
    if streams:
        yield _streams(streams, dry=bool(fields.get("dry_run")))
        if len(streams) > _SHOWN:
            yield f"and {text.counted(len(streams) - _SHOWN, 'more stream')}"
        yield ""
    mark, colour = _MARKS.get(fields["status"], ("✗", "red"))
    if (untried := _untried(fields, streams)) is not None:
        mark, colour = _MARKS["partial"]
        yield Text.assemble((f"{mark} nothing to try", colour), untried)
    else:
        yield Text.assemble((f"{mark} {fields['status']}", colour), _outcome(fields, streams))
    if fields.get("time"):
        yield f"  time      {_time(fields['time'], fields['seconds'], fields.get('start'))}"
    follows = (fields.get("error") or {}).get("message") if error_follows else None
    for stream in streams:
        if stream.get("error") and stream["error"]["message"] != follows:
            said = without_trace(stream["error"]["message"])
            yield f"  {text.stream_name(stream)} {stream['status']}: {said}"
    for note in fields["notes"]:
        yield f"  note      {without_trace(note)}"
    yield f"  run       {fields['run']} of pipeline {fields['pipeline']}"
    if fields.get("log"):
        yield f"  log       {fields['log']}"


def project_text(settled: "Sequence[PipelineResult]", kind: str) -> "Iterator[RenderableType]":
    """Yields the text of a project's runs: one table, then the notes of each report. ``kind``: the
    unit that runs, ``sync`` or ``pipeline``."""
    columns = {"read": "read", "written": "written", "rejected": "rejected"}
    reports = [each.report for each in settled if each.report is not None]
    if any(stream.target for report in reports for stream in report.streams):
        columns = {
            "read": "read", "written": "sent", "committed": "acked", "sent_again": "sent again",
            "rejected": "rejected",
        }  # fmt: skip
    if any(report.dry_run for report in reports):  # a call runs all of them so, or none
        columns = {"read": "read", "rejected": "rejected"}
    headings = (kind, "status", *columns.values(), "time")
    rows: list[tuple[object, ...]] = []
    for each in settled:
        streams = each.report.streams if each.report is not None else []
        total = [sum(getattr(s, name) for s in streams) for name in columns]
        took = text.seconds(each.report.seconds) if each.report is not None else None
        rows.append((each.sync, each.status, *total, took))
    yield text.grid(headings, rows, set(range(2, len(headings))))
    yield ""
    good = sum(each.exit_code == 0 for each in settled)
    yield f"{good} of {text.counted(len(settled), kind)} succeeded"
    for each in settled:
        for note in each.report.notes if each.report is not None else ():
            yield f"  {each.sync}: {without_trace(note)}"


def _streams(streams: list[dict[str, Any]], *, dry: bool) -> "RenderableType":
    """Returns the table of streams; if not all can be shown, unfinished ones come first. ``dry``:
    nothing was written, sent or saved."""
    shown = streams
    if len(streams) > _SHOWN:
        ranked = sorted(streams, key=lambda s: (s["status"] == "complete", -s["read"]))
        shown = ranked[:_SHOWN]
    if dry:
        return _only_read(shown)
    if any(s.get("target") for s in shown):
        return _fed(shown)
    older = ("superseded",) if any(map(_superseded, shown)) else ()
    sealed = ("sealed",) if any(map(_sealed, shown)) else ()
    filtered = ("filtered",) if any(map(_filtered, shown)) else ()
    headings = ("stream", "status", "read", *filtered, "written", *older, *sealed, "rejected",
                "bytes", "states", "table")  # fmt: skip
    rows = [
        (
            text.stream_name(s), s["status"], s["read"], *(_filtered(s) for _ in filtered),
            s["written"], *(_superseded(s) for _ in older), *(_sealed(s) for _ in sealed),
            s["rejected"], text.size(s["bytes"]), s["states"], s["table"],
        )
        for s in shown
    ]  # fmt: skip
    return text.grid(headings, rows, set(range(2, len(headings) - 1)))


def _superseded(stream: dict[str, Any]) -> int:
    """Returns the number of rows left out as older; reports of earlier versions lack it."""
    return int(stream.get("superseded", 0)) if stream["written"] < stream["read"] else 0


def _filtered(stream: dict[str, Any]) -> int:
    """Returns the number of rows that transforms dropped; reports of earlier versions lack it."""
    return int(stream.get("filtered", 0))


def _sealed(stream: dict[str, Any]) -> int:
    """Returns the number of rows that wait in the log; reports of earlier versions lack it."""
    return int(stream.get("sealed", 0))


def _only_read(shown: list[dict[str, Any]]) -> "RenderableType":
    """Returns the table of streams of a dry run, and where the rows would go."""
    headings = ("stream", "status", "read", "rejected", "bytes", "would go to")
    rows = [
        (
            text.stream_name(s), s["status"], s["read"], s["rejected"], text.size(s["bytes"]),
            s.get("target") or s["table"],
        )
        for s in shown
    ]  # fmt: skip
    return text.grid(headings, rows, {2, 3, 4})


def _fed(shown: list[dict[str, Any]]) -> "RenderableType":
    """Returns the table of streams of a destination connector: rows sent, rows acked."""
    sealed = ("sealed",) if any(map(_sealed, shown)) else ()
    filtered = ("filtered",) if any(map(_filtered, shown)) else ()
    headings = (
        "stream", "status", "read", *filtered, "sent", "acked", "sent again", *sealed, "rejected",
        "bytes", "states", "as",
    )  # fmt: skip
    rows = [
        (
            text.stream_name(s), s["status"], s["read"], *(_filtered(s) for _ in filtered),
            s["written"], s["committed"],
            s["sent_again"], *(_sealed(s) for _ in sealed), s["rejected"], text.size(s["bytes"]),
            s["states"], s.get("target"),
        )
        for s in shown
    ]  # fmt: skip
    return text.grid(headings, rows, set(range(2, len(headings) - 1)))


def _untried(fields: dict[str, Any], streams: list[dict[str, Any]]) -> str | None:
    """Formats the outcome of a retry that had no reject to try and no rows of earlier runs to load;
    None: of any other run."""
    retried = fields.get("retried")
    if fields["status"] != "succeeded" or retried is None or retried["tried"]:
        return None
    if any(stream["written"] for stream in streams):
        return None
    left = sum(each["rejects"] for each in retried["left"])
    return f": {text.counted(left, 'reject')} left (the notes say why)" if left else ": no rejects"


def _outcome(fields: dict[str, Any], streams: list[dict[str, Any]]) -> str:
    counts = ("read", "written", "committed", "sent_again", "rejected", "bytes", "states")
    total = {k: sum(s[k] for s in streams) for k in counts}
    parts = [f": {text.counted(total['read'], 'row')}"]
    if fields["seconds"] is not None:
        parts[0] += f" in {text.seconds(fields['seconds'])}"
        rate = text.rate(total["read"], fields["seconds"])
        parts += [rate] if rate else []
    parts.append(text.size(total["bytes"]))
    if fields.get("dry_run"):
        return ", ".join([*parts, f"{total['rejected']:,} rejected", "nothing written or saved"])
    if any(s.get("target") for s in streams):
        sent, acked = total["written"], total["committed"]
        parts.append(f"{sent:,} sent" if sent == acked else f"{sent:,} sent, {acked:,} acked")
    if total["sent_again"]:
        parts.append(f"{total['sent_again']:,} of them sent again")
    parts.append(f"{total['rejected']:,} rejected")
    if sealed := sum(map(_sealed, streams)):
        parts.append(f"{sealed:,} sealed for the next run")
    states = total["states"]
    parts.append(f"{text.counted(states, 'state')} saved" if states else "no state saved")
    began = total["read"] or total["written"] or fields["status"] == "succeeded"
    if fields["guarantee"] and began:
        parts.append(str(fields["guarantee"]))
    return ", ".join(parts)


def _time(spent: dict[str, float], total: float, start: str | None) -> str:
    """Formats where the time went, in the order of the run; the seconds add up to ``total``, except
    those of loads during a lane."""
    beside = spent.get("beside", 0.0)
    parts = [
        ("install", spent["install"], ""),
        ("prepare", spent.get("prepare", 0.0), ""),
        ("discover", spent.get("discover", 0.0), ""),
        ("start-up", spent["start"], f" ({start})" if start else ""),
        ("stage", spent.get("stage", 0.0), ""),
        ("start lanes", spent.get("lane", 0.0), ""),
        (
            "extract",
            spent["extract"],
            f" (source {text.seconds(spent['source_wait'])}, "
            f"decode {text.seconds(spent['decode'])})",
        ),
        ("load", spent["load"], _load(beside, spent["destination_wait"])),
        ("finish", spent.get("finish", 0.0), ""),
    ]
    tail = spent.get("tail", 0.0)
    shown = [
        f"{name} {text.seconds(value)}{_share(value, total)}{more}"
        for name, value, more in parts
        if value >= 0.05
    ]
    after = f"; {text.seconds(tail)} after the source's end" if tail >= 0.05 else ""
    return (", ".join(shown) or "less than 0.1 s in any phase") + after


def _load(beside: float, waited: float) -> str:
    about = [f"{text.seconds(beside)} during the extract"] if beside >= 0.05 else []
    about += [f"destination {text.seconds(waited)}"] if waited >= 0.05 else []
    return f" ({', '.join(about)})" if about else ""


def _share(value: float, total: float) -> str:
    return f" {100 * value / total:.0f} %" if total else ""

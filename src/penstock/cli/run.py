"""Defines the verbs ``run`` and ``plan``: their options, signals and final output.

``engine.run`` and ``engine.inspect.plan_check`` do the work. Neighbours: ``arguments`` reads the
pipeline, ``progress`` shows the run, ``report_view`` its result.
"""

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.cli.consent import Yes, settle
from penstock.config.command_line import Options
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project
from penstock.errors import Cancelled, ConfigError, PenstockError
from penstock.short_texts import bounded
from penstock.terminal import format as text
from penstock.terminal.error_view import DescribedError
from penstock.terminal.progress import watching

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.engine.specs.observer import RunObserver


END_SECONDS = 150.0
"""Seconds from the request to stop a run until the process ends in any case. Longer than the bounds
within a run (``engine.run.stop_bound``)."""
SEALED = "what is sealed stays"


@dataclass(frozen=True, slots=True, repr=False)
class SyncOptions:
    """The options of ``run`` and ``plan`` that select what is synced and how. Has no ``repr``,
    since they may hold passwords (L10)."""

    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="PIPELINE",
            help="A pipeline file, a folder of them, a project's folder, - for stdin, or a source.",
        ),
    ]
    destination: arguments.Destination = None
    more: arguments.More = None
    streams: Annotated[
        str | None,
        arguments.option(
            "--streams", "A,B", "Only these: names, 'user*', namespace.name, or JSON."
        ),
    ] = None
    exclude: Annotated[
        str | None, arguments.option("--exclude", "A,B", "All but these; 'tmp_*' works too.")
    ] = None
    destination_stream: Annotated[
        str | None,
        arguments.option(
            "--destination-stream", "S", "The stream of a destination connector to write to."
        ),
    ] = None
    mode: Annotated[
        str | None,
        arguments.option(
            "--mode", "MODE", "insert, update, upsert, mirror or append, for every stream."
        ),
    ] = None
    sync_mode: Annotated[
        str | None,
        arguments.option("--sync-mode", "MODE", "How the source reads: full_refresh, incremental."),
    ] = None
    destination_sync_mode: Annotated[
        str | None,
        arguments.option(
            "--destination-sync-mode",
            "MODE",
            "append, overwrite (implies full_refresh) or append_dedup.",
        ),
    ] = None
    cursor_field: Annotated[
        str | None, arguments.option("--cursor-field", "F", "A field, or a path as a JSON list.")
    ] = None
    primary_key: Annotated[
        str | None, arguments.option("--primary-key", "A,B", "Fields, or paths as JSON lists.")
    ] = None
    history: Annotated[
        bool | None,
        typer.Option(
            "--history", help="Keep every version of a key, in tables of streams with a key."
        ),
    ] = None
    config: arguments.Config = None
    destination_config: arguments.DestinationConfig = None


Refresh = Annotated[
    bool,
    typer.Option("--refresh", help="Discover the source's streams before the read, not during it."),
]
Lanes = Annotated[
    str | None, arguments.option("--lanes", "N|auto", "How many source processes read at a time.")
]
MaxRejected = Annotated[
    str | None,
    arguments.option(
        "--max-rejected", "N|N%", "Rejects of a stream before it fails. Default: all but one."
    ),
]
_LATER = "known at the load"


@verb(
    "penstock run airbyte:source-faker parquet:./lake --config '{\"count\": 1000}'",
    "penstock run airbyte:source-faker singer:target-jsonl --config @faker.json",
    "penstock run shop.yaml --streams users,orders",
    "penstock run airbyte:source-faker delta:./lake --exclude products --mode mirror",
    "penstock run shop.yaml crm.yaml",
    "penstock run ./pipelines --select shop,crm",
    "penstock run ./my-syncmaven-project --select contacts",
)
def run(
    surface: Surface,
    streaming: SyncOptions,
    select: arguments.Select = None,
    full_refresh: Annotated[
        bool,
        typer.Option(
            "--full-refresh", help="Start from the beginning: forget these streams' states."
        ),
    ] = False,
    recreate: Annotated[
        bool,
        typer.Option(
            "--recreate",
            help="Read from the start; complete streams then replace their tables' rows.",
        )
    ] = False,
    lanes: Lanes = None,
    max_rejected: MaxRejected = None,
    limit: Annotated[
        int | None,
        arguments.option("--limit", "N", "N records per stream; nothing is saved.", min=1)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and decode; write and save nothing.")
    ] = False,
    refresh: Refresh = False,
    building: arguments.BuildOptions = arguments.BUILDING,
    reading: arguments.PipelineFileOptions = arguments.READING,
    yes: Yes = False,
    no_daemon: Annotated[
        bool,
        typer.Option("--no-daemon", help="Start a Spark of this run's own, which ends with it."),
    ] = False,
    profile: Annotated[
        Path | None,
        arguments.option("--profile", "FILE", "Write the run's timeline: trace events, as JSON."),
    ] = None,
) -> int:  # fmt: skip
    """One sync: from a source to a destination. Run again, it brings only what is new. Of several
    pipeline files or a folder: each of its pipelines, one after the other."""
    more = {"lanes": lanes, "max_rejected": max_rejected}
    options: dict[str, Any] = {
        "dry_run": dry_run, "limit": limit, "full_refresh": full_refresh, "refresh": refresh,
        "recreate": recreate, "yes": yes, "daemon": not no_daemon,
    }  # fmt: skip
    words, given = _given(streaming, building, more)
    from penstock.engine.inspect.plan_check import consents

    with _kept_fault(surface, words, reading.name, dry=dry_run or limit is not None):
        found = arguments.project(words, select, reading, given, surface.output)
        if found is None:
            wanted = arguments.pipeline(words, reading, given, surface.output)
            _refuse_profile(wanted, profile)
            settle(surface, consents(wanted, surface.home), yes=yes)
            return shown_run(surface, wanted, {**options, "profile": profile})
    _refuse_profile_of_many(profile)
    return _run_project(surface, found, options, yes=yes)


def _refuse_profile_of_many(profile: Path | None) -> None:
    if profile is not None:
        raise ConfigError(
            "--profile covers one run; several pipelines are given",
            code="config.profile",
            hint="give one pipeline file, or a source and a destination",
        )


@contextmanager
def _kept_fault(
    surface: Surface, words: list[str], name: str | None, *, dry: bool
) -> Generator[None]:
    """Records a fault in the block as that of a run that failed before it began, unless ``dry``."""
    if dry:
        yield
        return
    from penstock.engine.run.attempts import kept_fault

    with kept_fault(surface.home, words, name):
        yield


def _refuse_profile(pipeline: Pipeline, profile: Path | None) -> None:
    if profile is not None and str(profile) in pipeline.profiles:
        raise ConfigError(
            f"--profile names the file of a timeline, and {str(profile)!r} is a profile of "
            f"{pipeline.origin}",
            code="config.profile",
            hint=f"write --with {profile} to run that profile; else give the timeline another name",
        )


def shown_run(surface: Surface, pipeline: Pipeline, options: dict[str, Any]) -> int:
    """Runs a pipeline and prints its report; returns the exit code. ``options``: of
    ``run_pipeline``."""
    from penstock.cli.report_view import report_text
    from penstock.engine.run.start import request_cancel, run_pipeline

    with stoppable(request_cancel, _stays(options)), watching(surface.output) as observer:
        report = run_pipeline(pipeline, surface.home, observer=observer, **options)
    if not _is_quiet(surface, report.exit_code):
        surface.output.answer(report, lambda: report_text(report, error_follows=True))
    if report.error is not None and not surface.output.as_json:
        fault = DescribedError(report.error, report.exit_code)
        surface.output.fault(fault, log=str(surface.home.path / report.log))
    return report.exit_code


@verb(
    "penstock plan shop.yaml",
    "penstock plan airbyte:source-faker delta:./lake --destination-sync-mode append_dedup --json",
)
def plan(
    surface: Surface,
    streaming: SyncOptions,
    select: arguments.Select = None,
    lanes: Lanes = None,
    max_rejected: MaxRejected = None,
    refresh: Refresh = False,
    building: arguments.BuildOptions = arguments.BUILDING,
    reading: arguments.PipelineFileOptions = arguments.READING,
    yes: Yes = False,
) -> int:
    """What `run` would do with these options. No record is read and nothing is written."""
    more = {"lanes": lanes, "max_rejected": max_rejected}
    from penstock.engine.inspect.plan_check import consents, plan_pipeline

    verbose = surface.output.verbosity >= 1
    words, given = _given(streaming, building, more)
    found = arguments.project(words, select, reading, given, surface.output)
    if found is not None:
        wanted = found.pipelines
    else:
        wanted = {"": arguments.pipeline(words, reading, given, surface.output)}
    answers: list[dict[str, Any]] = []
    for id_, pipeline in wanted.items():
        if yes:
            settle(surface, consents(pipeline, surface.home), yes=True)
        with watching(surface.output) as observer:
            try:
                planned = plan_pipeline(pipeline, surface.home, observer=observer)
            except PenstockError as e:
                if found is None:
                    raise
                planned = _unplanned(pipeline, e)
        answers.append(planned if found is None else {"sync": id_, **planned})
    answer = answers[0] if found is None else {"project": found.name, "syncs": answers}

    def shown() -> "Iterator[RenderableType]":
        for number, planned in enumerate(answers):
            if number:
                yield ""
            yield from _plan_text(planned, columns=verbose)

    surface.output.answer(answer, shown)
    return ConfigError.exit_code if any(planned["problems"] for planned in answers) else 0


def _unplanned(pipeline: Pipeline, error: PenstockError) -> dict[str, Any]:
    """Returns the plan of a sync whose connectors or database did not answer."""
    return {
        "pipeline": pipeline.pipeline,
        "streams": [],
        "guarantee": "at-least-once",
        "notes": [],
        "problems": [bounded(error.message)],
    }


def _given(
    streaming: SyncOptions, building: arguments.BuildOptions, more: dict[str, str | None]
) -> tuple[list[str], Options]:
    """Returns the words of the command, and its options."""
    given: dict[str, Any] = asdict(streaming) | more
    first, second, rest = (given.pop(name) for name in ("pipeline", "destination", "more"))
    words = [word for word in (first, second, *(rest or ())) if word is not None]
    constraints = tuple(building.constraint or ())
    return words, Options(**given, constraints=constraints, no_builds=building.no_builds)


def _run_project(surface: Surface, project: Project, options: dict[str, Any], *, yes: bool) -> int:
    """Runs the syncs of a project; returns the highest of their exit codes."""
    from penstock.cli.report_view import project_text
    from penstock.engine.inspect.plan_check import consents
    from penstock.engine.run.run_all import run_all
    from penstock.engine.run.start import request_cancel

    for pipeline in project.pipelines.values():
        settle(surface, consents(pipeline, surface.home), yes=yes)

    kind = "pipeline" if project.name is None else "sync"

    @contextmanager
    def observe(id_: str) -> "Generator[RunObserver]":
        surface.output.say(f"{kind} {id_}")
        with watching(surface.output) as observer:
            yield observer

    with stoppable(request_cancel, _stays(options)):
        settled = run_all(project.pipelines, surface.home, observe=observe, **options)
    code = max(each.exit_code for each in settled)
    answer = {"project": project.name, "exit_code": code, "syncs": settled}
    if not _is_quiet(surface, code):
        surface.output.answer(answer, lambda: project_text(settled, kind))
    for each in settled:
        if each.error is not None and not surface.output.as_json:
            surface.output.say("")
            log = str(surface.home.path / each.report.log) if each.report is not None else None
            surface.output.fault(DescribedError(each.error, each.exit_code), log=log)
    return code


def _stays(options: dict[str, Any]) -> str:
    """Returns what a stopped run with these options of ``run_pipeline`` keeps."""
    dry = options.get("dry_run") or options.get("limit") is not None
    return "nothing is kept" if dry else SEALED


def _is_quiet(surface: Surface, exit_code: int) -> bool:
    """Returns whether nothing is printed for a run: with ``-q`` one that succeeded, unless as
    JSON."""
    output = surface.output
    return output.verbosity < 0 and not output.as_json and exit_code == 0


@contextmanager
def stoppable(request_cancel: Callable[[], None], stays: str = SEALED) -> Generator[None]:
    """Handles Ctrl-C, SIGTERM and SIGHUP while the block runs: the first stops the run gracefully,
    the second ends the process at once (its children die with it), as does a stop that takes
    :data:`END_SECONDS`. ``stays``: says what is kept. After a SIGHUP nothing more is written to the
    terminal, which is gone; an ignored SIGHUP (nohup) stays ignored."""
    asked, over = False, threading.Event()
    said = f"\nstopping: {stays}; once more to stop at once\n".encode()
    terminals = [fd for fd in range(3) if os.isatty(fd)]

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del frame
        if number == signal.SIGHUP and terminals:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for fd in terminals:
                os.dup2(nowhere, fd)
            os.close(nowhere)
        if asked:
            os._exit(Cancelled.exit_code)
        asked = True
        request_cancel()
        threading.Thread(target=_end_late, args=(over,), name="end-late", daemon=True).start()
        # not the Output: a handler may interrupt one of its writes, to a pipe that nobody reads
        with suppress(OSError):
            if select.select([], [sys.stderr.fileno()], [], 0)[1]:
                os.write(sys.stderr.fileno(), said)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    earlier = {n: signal.signal(n, handle) for n in numbers}
    try:
        yield
    finally:
        over.set()
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _end_late(over: threading.Event) -> None:
    """Ends the process :data:`END_SECONDS` after the request to stop a run, if it has not ended,
    and Spark's Java process with it, which may be suspended."""
    if over.wait(END_SECONDS):
        return
    from penstock.engine.run.spark import kill_java

    with suppress(Exception):
        kill_java()
    os._exit(Cancelled.exit_code)


_NEWEST = {
    "arrival": "the row that came last is the newest of its key",
    "destination": "the destination decides which row of a key is the newest",
}


_ORDERS = {
    "value": " (of whole numbers and ISO 8601 times; of other text the row that came last)",
    "text": " (byte by byte)",
}


_UNDECLARED = {
    "keep": "; properties that its schema does not declare are kept as JSON",
    "columns": "; properties that its schema does not declare get columns",
}


def _why(stream: dict[str, Any]) -> str:
    """Returns why the stream has its destination sync mode, and how the newest row of a key is
    chosen."""
    why = f"{stream['destination_sync_mode']}: {stream['mode_reason']}"
    if stream["retry_rejected"]:
        why += f"; a rejected row is sent again in {stream['retry_rejected']} later runs"
    why += _UNDECLARED.get(stream["undeclared"], "")
    if stream["undeclared"] == "keep" and stream["transformed"]:
        why += ", where the rows of the transforms have `_penstock_extra`"
    if stream["load_reason"] is not None:
        why += f"; loads: {stream['load_way'] or 'known later'}, as {stream['load_reason']}"
    newest = stream["newest_by"]
    if newest is None:
        return why
    if stream["history"]:
        by = newest["by"] == "cursor" and f"its {'.'.join(newest['field'])}"
        return f"{why}; every version of a key is kept, from {by or 'its time of extraction'} on"
    by = f"the newest row of a key is that with the highest {'.'.join(newest['field'])}"
    by += _ORDERS.get(newest.get("order"), "")
    return f"{why}; {_NEWEST.get(newest['by'], by)}"


def _stream_grid(streams: list[dict[str, Any]]) -> "RenderableType":
    rows = [
        (
            text.stream_name(s),
            s.get("sync_mode"),
            s.get("destination_sync_mode"),
            ".".join(s.get("cursor_field") or ()),
            text.paths(s.get("primary_key")),
            len(s["columns"]) if s["columns_known"] else _LATER,
            s["target"] or s["table"],
        )
        for s in streams
    ]
    headings = (
        "stream",
        "sync mode",
        "destination",
        "cursor",
        "primary key",
        "columns",
        "as" if any(s["target"] for s in streams) else "table",
    )
    return text.grid(headings, rows, {5})


def _limit_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Yields the permissions and limits that the pipeline allows, that manifests request, and that
    apply."""
    for what in ("permissions", "limits"):
        for end, asked in (answer.get(what) or {}).items():
            for name, value in asked.items():
                yield f"{what}: {end}.{name} = {value}"
    for end, lines in (answer.get("asks") or {}).items():
        for line in lines:
            yield f"asks: {end} {line['name']} = {json.dumps(line['value'])} ({line['rule']})"
    for end, lines in (answer.get("held") or {}).items():
        for line in lines:
            value = "unlimited" if line["value"] is None else json.dumps(line["value"])
            yield f"held: {end} {line['name']} = {value} ({line['rule']})"


def _plan_text(answer: dict[str, Any], *, columns: bool) -> "Iterator[RenderableType]":
    yield f"pipeline {answer['pipeline']}, {answer['guarantee']}"
    yield ""
    streams: list[dict[str, Any]] = answer["streams"]
    if streams:
        yield _stream_grid(streams)
        yield ""
    chosen: dict[str, list[str]] = {}
    for s in streams:
        chosen.setdefault(_why(s), []).append(text.stream_name(s))
    for why, names in chosen.items():
        yield f"{', '.join(names)}: {why}"
    for s in streams if columns else ():
        if not s["columns_known"]:
            yield f"{text.stream_name(s)}: columns {_LATER}"
            continue
        yield text.stream_name(s)
        typed = ((c["name"], c["type"]) for c in s["columns"])
        yield text.grid(("  column", "type"), ((f"  {name}", kind) for name, kind in typed))
    for s in streams:
        for hint in s.get("hints") or ():
            yield f"{text.stream_name(s)}: {hint['name']} = {hint['value']} ({hint['rule']})"
    yield from _limit_lines(answer)
    for note in answer["notes"]:
        yield f"note: {note}"
    for problem in answer["problems"]:
        yield f"problem: {problem}"

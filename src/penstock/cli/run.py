"""The verbs ``run`` and ``plan``: their options, signals, and what is printed at the end.

``engine.run`` and ``engine.inspect.plan_check`` do the work. Neighbours: ``arguments`` reads the
pipeline, ``progress`` shows the run, ``report_view`` its end.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import arguments
from penstock.cli import format as text
from penstock.cli.app import Surface, verb
from penstock.cli.consent import Yes, settle
from penstock.cli.error_view import Fault
from penstock.cli.progress import watching
from penstock.config.command_line import Options
from penstock.errors import Cancelled, ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType


def _option(name: str, metavar: str, meaning: str) -> Any:
    return typer.Option(name, metavar=metavar, help=meaning, show_default=False)


Pipeline = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="A pipeline file, - for stdin, or a source."),
]
Streams = Annotated[
    str | None, _option("--streams", "A,B", "Only these: names, 'user*', namespace.name, or JSON.")
]
Exclude = Annotated[str | None, _option("--exclude", "A,B", "All but these; 'tmp_*' works too.")]
DestinationStream = Annotated[
    str | None,
    _option("--destination-stream", "S", "The stream of a destination connector to write to."),
]
Mode = Annotated[
    str | None,
    _option("--mode", "MODE", "insert, update, upsert, mirror or append, for every stream."),
]
SyncMode = Annotated[
    str | None, _option("--sync-mode", "MODE", "How the source reads: full_refresh, incremental.")
]
DestinationSyncMode = Annotated[
    str | None,
    _option(
        "--destination-sync-mode",
        "MODE",
        "append, overwrite (implies full_refresh) or append_dedup.",
    ),
]
CursorField = Annotated[
    str | None, _option("--cursor-field", "F", "A field, or a path as a JSON list.")
]
PrimaryKey = Annotated[
    str | None, _option("--primary-key", "A,B", "Fields, or paths as JSON lists.")
]
Refresh = Annotated[
    bool,
    typer.Option("--refresh", help="Ask the source for its streams, even if it was asked today."),
]
Lanes = Annotated[
    str | None, _option("--lanes", "N|auto", "How many source processes read at a time.")
]
MaxRejected = Annotated[
    str | None,
    _option("--max-rejected", "N|N%", "Rejects of a stream before it fails. Default: all but one."),
]
_LATER = "known at the load"

Name = Annotated[
    str | None, _option("--name", "NAME", "The pipeline's name; its state is under it.")
]


@verb(
    "penstock run airbyte:source-faker parquet:./lake --config '{\"count\": 1000}'",
    "penstock run airbyte:source-faker singer:target-jsonl --config @faker.json",
    "penstock run shop.yaml --streams users,orders",
    "penstock run airbyte:source-faker delta:./lake --exclude products --mode mirror",
)
def run(
    surface: Surface,
    pipeline: Pipeline,
    destination: arguments.Destination = None,
    streams: Streams = None,
    exclude: Exclude = None,
    destination_stream: DestinationStream = None,
    mode: Mode = None,
    sync_mode: SyncMode = None,
    destination_sync_mode: DestinationSyncMode = None,
    cursor_field: CursorField = None,
    primary_key: PrimaryKey = None,
    config: arguments.Config = None,
    destination_config: arguments.DestinationConfig = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Start anew: forget these streams' states.")
    ] = False,
    recreate: Annotated[
        bool,
        typer.Option(
            "--recreate", help="As --full-refresh, and what is read replaces the tables' rows."
        ),
    ] = False,
    lanes: Lanes = None,
    max_rejected: MaxRejected = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help="N records per stream; nothing is saved.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and decode; write and save nothing.")
    ] = False,
    refresh: Refresh = False,
    name: Name = None,
    constraint: arguments.Constraint = None,
    no_builds: arguments.NoBuilds = False,
    env_file: arguments.EnvFile = None,
    lenient: arguments.Lenient = False,
    yes: Yes = False,
) -> int:  # fmt: skip
    """One sync: from a source to a destination. Run again, it brings only what is new."""
    options = Options(
        streams=streams, exclude=exclude, destination_stream=destination_stream, mode=mode,
        sync_mode=sync_mode,
        destination_sync_mode=destination_sync_mode, cursor_field=cursor_field,
        primary_key=primary_key, config=config, destination_config=destination_config, name=name,
        lanes=lanes, max_rejected=max_rejected, constraints=tuple(constraint or ()),
        no_builds=no_builds,
    )  # fmt: skip
    reading = arguments.Reading.of(env_file, lenient)
    wanted = arguments.pipeline(pipeline, destination, reading, options, surface.output)
    from penstock.cli.report_view import report_text
    from penstock.engine.inspect.plan_check import consents
    from penstock.engine.run import request_cancel, run_pipeline

    settle(surface, consents(wanted, surface.home), yes=yes)
    with stoppable(request_cancel), watching(surface.output) as observer:
        report = run_pipeline(
            wanted,
            surface.home,
            observer=observer,
            dry_run=dry_run,
            limit=limit,
            full_refresh=full_refresh,
            refresh=refresh,
            recreate=recreate,
        )
    surface.output.answer(report, lambda: report_text(report))
    if report.error is not None and not surface.output.as_json:
        fault = Fault(report.error, report.exit_code)
        surface.output.fault(fault, log=str(surface.home.path / report.log))
    return report.exit_code


@verb(
    "penstock plan shop.yaml",
    "penstock plan airbyte:source-faker delta:./lake --destination-sync-mode append_dedup --json",
)
def plan(
    surface: Surface,
    pipeline: Pipeline,
    destination: arguments.Destination = None,
    streams: Streams = None,
    exclude: Exclude = None,
    destination_stream: DestinationStream = None,
    mode: Mode = None,
    sync_mode: SyncMode = None,
    destination_sync_mode: DestinationSyncMode = None,
    cursor_field: CursorField = None,
    primary_key: PrimaryKey = None,
    config: arguments.Config = None,
    destination_config: arguments.DestinationConfig = None,
    lanes: Lanes = None,
    max_rejected: MaxRejected = None,
    refresh: Refresh = False,
    name: Name = None,
    constraint: arguments.Constraint = None,
    no_builds: arguments.NoBuilds = False,
    env_file: arguments.EnvFile = None,
    lenient: arguments.Lenient = False,
    yes: Yes = False,
) -> int:
    """What `run` would do with these options. No record is read and nothing is written."""
    options = Options(
        streams=streams, exclude=exclude, destination_stream=destination_stream, mode=mode,
        sync_mode=sync_mode,
        destination_sync_mode=destination_sync_mode, cursor_field=cursor_field,
        primary_key=primary_key, config=config, destination_config=destination_config, name=name,
        lanes=lanes, max_rejected=max_rejected, constraints=tuple(constraint or ()),
        no_builds=no_builds,
    )  # fmt: skip
    reading = arguments.Reading.of(env_file, lenient)
    wanted = arguments.pipeline(pipeline, destination, reading, options, surface.output)
    from penstock.engine.inspect.plan_check import consents, plan_pipeline

    if yes:
        settle(surface, consents(wanted, surface.home), yes=True)
    with watching(surface.output) as observer:
        answer = plan_pipeline(wanted, surface.home, observer=observer, refresh=refresh)
    verbose = surface.output.verbosity >= 1
    surface.output.answer(answer, lambda: _plan_text(answer, columns=verbose))
    return ConfigError.exit_code if answer["problems"] else 0


@contextmanager
def stoppable(request_cancel: Callable[[], None]) -> Generator[None]:
    """Ctrl-C, SIGTERM and SIGHUP ask the run to stop; the second one ends the process at once (its
    children die with it). After a SIGHUP nothing more is written to the terminal, which is gone;
    where it is ignored (nohup) it stays so."""
    asked = False
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
        # not the Output: a handler may interrupt a write of its own
        with suppress(OSError):
            os.write(
                sys.stderr.fileno(),
                b"\nstopping: what is sealed stays; once more to stop at once\n",
            )
        request_cancel()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    earlier = {n: signal.signal(n, handle) for n in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


_NEWEST = {
    "arrival": "the row that came last is the newest of its key",
    "extraction": "the row extracted last is the newest of its key",
    "destination": "the destination decides which row of a key is the newest",
}


def _why(stream: dict[str, Any]) -> str:
    """Why the stream has its destination sync mode, and what makes a row the newest of its key."""
    why = f"{stream['destination_sync_mode']}: {stream['mode_reason']}"
    newest = stream["newest_by"]
    if newest is None:
        return why
    by = f"the newest row of a key is that with the highest {'.'.join(newest['field'])}"
    return f"{why}; {_NEWEST.get(newest['by'], by)}"


def _plan_text(answer: dict[str, Any], *, columns: bool) -> "Iterator[RenderableType]":
    yield f"pipeline {answer['pipeline']}, {answer['guarantee']}"
    yield ""
    streams: list[dict[str, Any]] = answer["streams"]
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
    if rows:
        headings = (
            "stream",
            "sync mode",
            "destination",
            "cursor",
            "primary key",
            "columns",
            "as" if any(s["target"] for s in streams) else "table",
        )
        yield text.grid(headings, rows, {5})
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
    for note in answer["notes"]:
        yield f"note: {note}"
    for problem in answer["problems"]:
        yield f"problem: {problem}"

"""The verbs ``run`` and ``plan``: their options, signals, and what is printed at the end.

``engine.run`` and ``engine.asked`` do the work. Neighbours: ``inputs`` reads the pipeline,
``progress`` shows the run, ``reports`` its end.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import inputs, text
from penstock.cli.command import Surface, verb
from penstock.cli.faults import Fault
from penstock.cli.progress import watching
from penstock.config.quick import Options
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
    str | None, _option("--streams", "A,B", "Only these: names, namespace.name, or JSON.")
]
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
    _option("--destination-sync-mode", "MODE", "append, overwrite or append_dedup."),
]
CursorField = Annotated[
    str | None, _option("--cursor-field", "F", "A field, or a path as a JSON list.")
]
PrimaryKey = Annotated[
    str | None, _option("--primary-key", "A,B", "Fields, or paths as JSON lists.")
]
Lanes = Annotated[
    str | None, _option("--lanes", "N|auto", "How many source processes read at a time.")
]
_LATER = "known at the load"

Name = Annotated[
    str | None, _option("--name", "NAME", "The pipeline's name; its state is under it.")
]


@verb(
    "penstock run airbyte:source-faker parquet:./lake --config '{\"count\": 1000}'",
    "penstock run airbyte:source-faker singer:target-jsonl --config @faker.json",
    "penstock run shop.yaml --streams users,orders",
    "penstock run airbyte:source-faker delta:./lake --destination-sync-mode append_dedup",
)
def run(
    surface: Surface,
    pipeline: Pipeline,
    destination: inputs.Destination = None,
    streams: Streams = None,
    destination_stream: DestinationStream = None,
    mode: Mode = None,
    sync_mode: SyncMode = None,
    destination_sync_mode: DestinationSyncMode = None,
    cursor_field: CursorField = None,
    primary_key: PrimaryKey = None,
    config: inputs.Config = None,
    destination_config: inputs.DestinationConfig = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Start anew: forget these streams' states.")
    ] = False,
    lanes: Lanes = None,
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
    name: Name = None,
    env_file: inputs.EnvFile = None,
    lenient: inputs.Lenient = False,
) -> int:  # fmt: skip
    """One sync: from a source to a destination. Run again, it brings only what is new."""
    options = Options(
        streams=streams, destination_stream=destination_stream, mode=mode, sync_mode=sync_mode,
        destination_sync_mode=destination_sync_mode, cursor_field=cursor_field,
        primary_key=primary_key, config=config, destination_config=destination_config, name=name,
        lanes=lanes,
    )  # fmt: skip
    reading = inputs.Reading.of(env_file, lenient)
    wanted = inputs.pipeline(pipeline, destination, reading, options, surface.output)
    from penstock.cli.reports import report_text
    from penstock.engine.run import request_cancel, run_pipeline

    with stoppable(request_cancel), watching(surface.output) as observer:
        report = run_pipeline(
            wanted,
            surface.home,
            observer=observer,
            dry_run=dry_run,
            limit=limit,
            full_refresh=full_refresh,
        )
    surface.output.answer(report, lambda: report_text(report))
    if report.error is not None and not surface.output.as_json:
        fault = Fault.reported(report.error, report.exit_code)
        surface.output.fault(fault, log=str(surface.home.path / report.log))
    return report.exit_code


@verb(
    "penstock plan shop.yaml",
    "penstock plan airbyte:source-faker delta:./lake --destination-sync-mode append_dedup --json",
)
def plan(
    surface: Surface,
    pipeline: Pipeline,
    destination: inputs.Destination = None,
    streams: Streams = None,
    destination_stream: DestinationStream = None,
    mode: Mode = None,
    sync_mode: SyncMode = None,
    destination_sync_mode: DestinationSyncMode = None,
    cursor_field: CursorField = None,
    primary_key: PrimaryKey = None,
    config: inputs.Config = None,
    destination_config: inputs.DestinationConfig = None,
    lanes: Lanes = None,
    name: Name = None,
    env_file: inputs.EnvFile = None,
    lenient: inputs.Lenient = False,
) -> int:
    """What `run` would do with these options. No record is read and nothing is written."""
    options = Options(
        streams=streams, destination_stream=destination_stream, mode=mode, sync_mode=sync_mode,
        destination_sync_mode=destination_sync_mode, cursor_field=cursor_field,
        primary_key=primary_key, config=config, destination_config=destination_config, name=name,
        lanes=lanes,
    )  # fmt: skip
    reading = inputs.Reading.of(env_file, lenient)
    wanted = inputs.pipeline(pipeline, destination, reading, options, surface.output)
    from penstock.engine.asked import plan_pipeline

    with watching(surface.output) as observer:
        answer = plan_pipeline(wanted, surface.home, observer=observer)
    verbose = surface.output.verbosity >= 1
    surface.output.answer(answer, lambda: _plan_text(answer, columns=verbose))
    return ConfigError.exit_code if answer["problems"] else 0


@contextmanager
def stoppable(request_cancel: Callable[[], None]) -> Generator[None]:
    """Ctrl-C and SIGTERM ask the run to stop; the second one ends the process at once (its children
    die with it)."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        del number, frame
        if asked:
            os._exit(Cancelled.exit_code)
        asked = True
        # not the Output: a handler may interrupt a write of its own
        os.write(
            sys.stderr.fileno(),
            b"\nstopping: what is sealed stays; once more to stop at once\n",
        )
        request_cancel()

    earlier = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


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
    for end, lines in (answer.get("held") or {}).items():
        for line in lines:
            value = "unlimited" if line["value"] is None else json.dumps(line["value"])
            yield f"held: {end} {line['name']} = {value} ({line['rule']})"
    for note in answer["notes"]:
        yield f"note: {note}"
    for problem in answer["problems"]:
        yield f"problem: {problem}"

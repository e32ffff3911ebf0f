"""Defines the verb ``state``: show, set, reset, adopt, unlock, export, import, history.
``engine.inspect.states`` does the work.
"""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli import arguments
from penstock.cli.app import Surface, group, verb
from penstock.codec.exact_json import exact_text
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.selectors import parse_stream
from penstock.engine.channel.named_pipeline import home_options, sealed_command
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import OpenPipeline, open_known
from penstock.errors import ConfigError
from penstock.model.catalog import StreamId
from penstock.terminal import format as text

if TYPE_CHECKING:
    from rich.console import RenderableType

state = group(
    "The saved state of a pipeline.",
    "penstock state show shop",
    "penstock state reset shop --stream users",
)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="PIPELINE",
        help="A pipeline file (- for stdin), SOURCE DESTINATION, or the name of one that ran.",
    ),
]
Given = Annotated[str, typer.Argument(metavar="STATE", help="JSON, or @FILE.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for stdin.")]
Stream = Annotated[
    str | None, arguments.option("--stream", "S", "Only this one: NAME, NAMESPACE.NAME or JSON.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Save it, though it is another's or drops streams.")
]

_KEYS_SHOWN = 20  # shown connector keys, of which there may be 100,000


@verb("penstock state show shop", "penstock state show shop.yaml --stream users --json", app=state)
def show(
    surface: Surface,
    words: Words,
    stream: Stream = None,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """The saved state, stream by stream."""
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        _show(surface, known, states.show(known, _selector(stream)))


@verb("penstock state export shop > state.json", app=state)
def export(
    surface: Surface,
    words: Words,
    stream: Stream = None,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """What the source would be given, as JSON."""
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        surface.output.document(states.export(known, _selector(stream)))


@verb("penstock state history shop --stream users", app=state)
def history(
    surface: Surface,
    words: Words,
    stream: Stream = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Entries.")] = 100,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """What was saved when, newest first."""
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        entries = states.history(known, _selector(stream), limit)
    rows = (
        (
            e["at"],
            e["run"],
            text.stream_name(e) if e["name"] else "all",
            _saved(e),
        )
        for e in entries
    )
    surface.output.answer(entries, lambda: [text.grid(("at", "run", "stream", "state"), rows)])


@verb(
    "penstock state reset shop --stream users",
    "penstock state reset shop.yaml",
    "penstock state reset shop --cancel-refresh users",
    "penstock state reset shop.yaml --sealed",
    app=state,
)
def reset(
    surface: Surface,
    words: Words,
    stream: Stream = None,
    cancel_refresh: Annotated[
        str | None,
        arguments.option(
            "--cancel-refresh", "S", "End the stream's pending refresh; rows and state stay."
        ),
    ] = None,
    sealed: Annotated[
        bool,
        typer.Option(
            "--sealed",
            help="Give up the rows that wait to be delivered, too; into a destination connector "
            "these alone: the state stays.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="For --sealed: also rows of change logs.")
    ] = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Forget the state, or one stream's. The next run reads from the start; tables stay."""
    if stream is not None and cancel_refresh is not None:
        raise ConfigError(
            "--cancel-refresh keeps the state; --stream forgets it", code="usage",
            hint="give one of them",
        )  # fmt: skip
    if sealed and (stream is not None or cancel_refresh is not None):
        raise ConfigError(
            "--sealed gives up the rows of all streams", code="usage", hint="give it alone"
        )
    if yes and not sealed:
        raise ConfigError("--yes is for --sealed", code="usage", hint="leave it out")
    if sealed:
        named = arguments.pipeline_with_file(words, reading, surface.output, surface.home)
        with _opened(surface, named) as known:
            answer = states.give_up_waiting(named, known, yes=yes)
        surface.output.answer(answer, lambda: _given_up(answer))
        return
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        if cancel_refresh is None:
            _show(surface, known, states.reset(known, _selector(stream)))
        else:
            _show(surface, known, states.cancel_refresh(known, parse_stream(cancel_refresh)))


@verb(
    "penstock state adopt shop",
    "penstock state adopt shop --stream users",
    "penstock state adopt shop.yaml --place",
    app=state,
)
def adopt(
    surface: Surface,
    words: Words,
    stream: Stream = None,
    place: Annotated[
        bool,
        typer.Option(
            "--place", help="Only the place: the pipeline was moved to this folder or file."
        ),
    ] = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Take the tables as they are: for a restored or copied home, or a table that was changed."""
    if place and stream is not None:
        raise ConfigError(
            "--place is for a pipeline, --stream for one table", code="usage",
            hint="give one of them",
        )  # fmt: skip
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        answer = states.adopt_place(known) if place else states.adopt(known, _selector(stream))
    if place:
        text_ = f"pipeline {answer['pipeline']}: its place is {answer['place']} now"
        surface.output.answer(answer, lambda: [text_])
        return
    names = ", ".join(text.stream_name(s) for s in answer["adopted"]) or "no stream"
    surface.output.answer(
        answer, lambda: [f"pipeline {answer['pipeline']}: the next run takes as it is: {names}"]
    )


@verb("penstock state unlock shop", app=state)
def unlock(
    surface: Surface,
    words: Words,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Break the lock of a run that died. A run that lives keeps it."""
    with _opened(surface, _pipeline(surface, words, reading)) as known:
        answer = states.unlock(known)
    surface.output.answer(answer, lambda: [_unlocked(answer)])


@verb("penstock state set shop @users.json --stream users", app=state, name="set")
def set_(
    surface: Surface,
    words: Words,
    given: Given,
    stream: Stream = None,
    force: Force = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Put a state over the saved one. Streams that it does not name keep theirs."""
    origin = given[1:] if given.startswith("@") else "STATE"
    raw = states.read_state(_content(origin) if given.startswith("@") else given, origin)
    what = _pipeline(surface, words, reading)
    with _opened(surface, what, must_exist=False) as known:
        _show(surface, known, states.update(known, raw, _selector(stream), force=force))


@verb(
    "penstock state rewind shop --stream orders --to 2024-01-01",
    "penstock state rewind shop --stream users --to 1000 --field id",
    app=state,
)
def rewind(
    surface: Surface,
    words: Words,
    stream: Annotated[
        str, arguments.option("--stream", "S", "Stream: NAME, NAMESPACE.NAME or JSON.")
    ],
    to: Annotated[str, arguments.option("--to", "VALUE", "Where the next run begins.")],
    field: Annotated[
        str | None,
        arguments.option("--field", "F", "The cursor's name in the state, if it is not clear."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also to a later value: rows between are skipped.")
    ] = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Move the cursor in a stream's saved state: the next run reads from there again."""
    from penstock.engine.inspect.rewinds import rewind as rewound

    with _opened(surface, _pipeline(surface, words, reading)) as known:
        _show(surface, known, rewound(known, parse_stream(stream), to, field, force=force))


@verb("penstock state import shop state.json", app=state, name="import")
def import_(
    surface: Surface,
    words: Words,
    file: File,
    force: Force = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Replace the saved state by what `state export` wrote."""
    if file == "-" and "-" in words:
        raise ConfigError(
            "stdin cannot be the pipeline and the state", code="usage", hint="give one as a file"
        )
    raw = states.read_state(_content(file), "stdin" if file == "-" else file)
    what = _pipeline(surface, words, reading)
    with _opened(surface, what, must_exist=False) as known:
        _show(surface, known, states.replace(known, raw, force=force))


def _pipeline(
    surface: Surface, words: list[str], reading: arguments.PipelineFileOptions
) -> Pipeline | str:
    return arguments.pipeline_or_name(words, reading, surface.output, starts_none=True)


def _given_up(answer: dict[str, Any]) -> "Iterator[RenderableType]":
    rows = _rows(answer["given_up"])
    yield f"given up: {rows}; the next run reads them again" if rows else "no rows wait"
    yield from _state_text(answer)


def _rows(listed: list[dict[str, Any]]) -> str:
    return ", ".join(f"{text.counted(e['rows'], 'row')} of {text.stream_name(e)}" for e in listed)


def _opened(
    surface: Surface, what: Pipeline | str, *, must_exist: bool = True
) -> AbstractContextManager[OpenPipeline]:
    return open_known(what, surface.home, must_exist=must_exist, waiting=surface.output.say)


def _selector(stream: str | None) -> StreamOptions | None:
    return None if stream is None else parse_stream(stream)


def _content(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror}", code="config.not_found", where=file,
            hint="give a file that `penstock state export` wrote",
        ) from None  # fmt: skip
    except UnicodeDecodeError:
        raise ConfigError(
            f"{file} is not UTF-8 text", code="config.not_text", where=file,
            hint="give a file that `penstock state export` wrote",
        ) from None  # fmt: skip


def _show(surface: Surface, known: OpenPipeline, answer: dict[str, Any]) -> None:
    command = _sealed_command(known) if "waiting" in answer else ""
    surface.output.answer(answer, lambda: _state_text(answer, command))


def _sealed_command(known: OpenPipeline) -> str:
    """Returns the command that gives up what waits: by name only where a file is known."""
    no_file = isinstance(known.what, str) and known.store.remembered(known.name, ()).file is None
    if not no_file:
        return sealed_command(known.what, known.home)
    words = ["penstock", "state", "reset", "SOURCE", "DESTINATION", "--name", known.name]
    return shlex.join([*words, "--sealed", *home_options(known.home)])


def _saved(entry: dict[str, Any]) -> str:
    if "damaged" in entry:
        return "damaged"
    return "removed" if entry["state"] is None else text.short(_json(entry["state"]))


def _unlocked(answer: dict[str, Any]) -> str:
    had = answer["holder"]
    if had is None:
        return f"pipeline {answer['pipeline']}: no run has the lock"
    checked = "its process has ended" if answer["checked"] else "its process was not checked"
    return (
        f"pipeline {answer['pipeline']}: the lock is broken. It was of {had['name']} (process "
        f"{had['pid']}, run {had['run']}) since {had['started_at']}: {checked}; it can no longer "
        "commit"
    )


def _state_text(answer: dict[str, Any], command: str = "") -> "Iterator[RenderableType]":
    streams = answer["streams"]
    yield from (f"note: {note}" for note in answer.get("notes", ()))
    for each in answer.get("refreshes", ()):
        yield f"{text.stream_name(each)}: refresh pending since run {each['run']} ({each['at']})"
    if waiting := _rows(answer.get("waiting", [])):
        yield (
            f"sealed and not delivered: {waiting}. The next run delivers them first; after a reset "
            f"their source sends them again as well, unless `{command}` gives them up"
        )
    if not streams and answer["shared"] is None and not answer.get("connector_keys"):
        yield f"pipeline {answer['pipeline']}: no state is saved"
        return
    yield f"pipeline {answer['pipeline']}, {answer['type']} state"
    if streams:
        yield text.grid(
            ("stream", "state"),
            ((text.stream_name(s), text.short(_stream_text(s), 400)) for s in streams),
        )
    if keys := answer.get("connector_keys"):
        shown = ((k["scope"], _owner(k), k["key"], k["value"]) for k in keys[:_KEYS_SHOWN])
        yield text.grid(
            ("scope", "of", "key", "value"), ((*of, text.short(value, 200)) for *of, value in shown)
        )
        if len(keys) > _KEYS_SHOWN:
            yield f"and {len(keys) - _KEYS_SHOWN:,} more keys; --json gives all"
    if answer["shared"] is not None:
        yield f"shared: {text.short(_json(answer['shared']), 200)}"


def _stream_text(entry: dict[str, Any]) -> str:
    """Returns a stream's state; also where it continues, for a stream that the last run did not
    read."""
    said = text.short(_json(entry["state"]), 200)
    if "unread" not in entry:
        return said
    own = entry["unread"]["state"]
    then = "begins at its start" if own is None else f"goes on from {text.short(_json(own), 150)}"
    return f"{said} (the last run did not read it: when it is read again it {then})"


def _json(data: Any) -> str:
    """Returns readable JSON of the data, every number with all its digits."""
    return msgspec.json.format(exact_text(data), indent=0).decode()


def _owner(found: dict[str, Any]) -> str:
    """Returns the owner of a connector key; for a stream's key the stream's name."""
    if found["scope"] not in ("stream", "path"):
        return found["owner"]
    namespace, name = json.loads(found["owner"])
    return str(StreamId(namespace, name))

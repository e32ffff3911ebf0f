"""Decides what the relative paths of a pipeline mean.

Those of a pipeline file start at the file's folder, those of the command line at the folder in
which Penstock was started. Functions over a pipeline; they look whether files exist, and read none.
Not here: which of two folders has the tables (``engine.plan.place``). Neighbours: ``config.load``
and ``config.command_line`` call.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.config.pipeline import ConnectorSection, Pipeline
from penstock.config.place import Place, absolute, same_folder, working_folder
from penstock.config.protocol_spec import ProtocolSpec, specs
from penstock.config.table_formats import split_table, table_formats

S = TypeVar("S", bound=ConnectorSection)

_DOTTED = re.compile(r"""(?:^|[\s:=`'"])(\.{1,2}/[^\s`'"]*)""")  # ./x, ../x
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def placed_here(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline of a command line with its place: its paths start at the folder in which
    Penstock was started."""
    return replace(pipeline, place=_place(pipeline, working_folder()))


def placed_again(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline of a file with the place of its tables as an option of the command line
    gives it, whose path starts at the folder in which Penstock was started."""
    here = _place(pipeline, working_folder())
    place = pipeline.place or here
    lake = {"lake": here.lake, "written": here.written, "before": None}
    return replace(pipeline, place=msgspec.structs.replace(place, **lake))


def placed_at(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Returns the pipeline of a file in ``folder`` with its place, and with the paths that Penstock
    reads itself as absolute ones where they start at another folder than Penstock does.

    Its connectors run in the file's folder. Files of before, whose paths started at the folder in
    which Penstock was started, go on: a file, or a folder, that is there alone is taken from there,
    with a warning that has the line to write. Of tables the ledger decides
    (``engine.plan.place``)."""
    here = working_folder()
    start = absolute(str(folder), here)
    place = msgspec.structs.replace(_place(pipeline, start), from_file=True)
    if same_folder(start, here):
        return replace(pipeline, place=place)
    moves = _Moves(start, here)
    source, destination = moves.section(pipeline.source, "source"), pipeline.destination
    if place.lake is not None and place.written is not None:
        key, before = _key_of(destination), absolute(place.written, here)
        place = msgspec.structs.replace(place, before=None if before == place.lake else before)
        config = {**destination.config, key: place.lake}
        destination = replace(destination, config=config)
    destination = moves.section(destination, "destination")
    if moves.ran:
        place = msgspec.structs.replace(place, ran=here)
    state, log = pipeline.state, pipeline.log
    return replace(
        pipeline,
        source=source,
        destination=destination,
        transforms=tuple(moves.section(s, "transforms") for s in pipeline.transforms),
        enrichments=tuple(moves.section(s, "enrichments") for s in pipeline.enrichments),
        state=replace(
            state,
            path=moves.path(state.path, "state.path"),
            connection=state.connection
            if state.backend == "postgres"
            else moves.path(state.connection, "state.connection"),
        ),
        log=replace(log, path=moves.path(log.path, "log.path")),
        hooks=replace(
            pipeline.hooks,
            on_success=moves.hook(pipeline.hooks.on_success, "hooks.on_success"),
            on_failure=moves.hook(pipeline.hooks.on_failure, "hooks.on_failure"),
        ),
        place=place,
        warnings=(*pipeline.warnings, *moves.warnings),
    )


def as_written_in(folder: Path, value: Any) -> Any:
    """Returns a reference to a connector, or a configuration, of the command line as it stands in a
    file in ``folder`` and means the same."""
    here = working_folder()
    start = absolute(str(folder), here)
    if same_folder(start, here):
        return value

    def moved(path: str) -> str:
        found = os.path.relpath(absolute(path, here), start)
        return found if found.startswith(".") else f"./{found}"

    def text(text: str) -> str:
        table = split_table(text)
        if table is not None and table[1] == "path":
            plain = _is_relative(table[2]) and not table[2].startswith("catalog:")
            return f"{table[0]}:{moved(table[2])}" if table[2] and plain else text
        return _DOTTED.sub(lambda m: m[0].replace(m[1], moved(m[1])), text)

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: of(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [of(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
        dotted = isinstance(value, str) and value.startswith(("./", "../"))
        return moved(value) if dotted else value

    return text(value) if isinstance(value, str) else of(value)


class _Moves:
    """Makes relative paths start at ``start``, the file's folder, instead of ``here``."""

    def __init__(self, start: str, here: str) -> None:
        self._start, self._here = start, here
        self.warnings: list[str] = []
        self.ran = False  # whether a destination connector runs in another folder than before

    def path(self, path: str | None, key: str) -> str | None:
        if path is None or not _is_relative(path):
            return path
        if not self._is_only_here(path):
            return absolute(path, self._start)
        line = os.path.relpath(absolute(path, self._here), self._start)
        self.warnings.append(
            f"{key}: {path} is not in {self._start}, where paths of a pipeline file start, and is "
            f"taken from {self._here}, as by earlier versions: write `{line}`"
        )
        return absolute(path, self._here)

    def hook(self, hook: str | tuple[str, ...] | None, key: str) -> str | tuple[str, ...] | None:
        if not isinstance(hook, tuple) or not hook or os.sep not in hook[0]:
            return hook
        return (self.path(hook[0], f"{key}[0]") or hook[0], *hook[1:])

    def section(self, section: S, key: str) -> S:
        """Gives a connector the file's folder to run in."""
        if section.folder is not None or _is_table(section):
            return section
        found = [path for path in _paths(section) if self._is_only_here(path)]
        if not found:
            self.ran |= key == "destination"
            return replace(section, folder=self._start)
        line = f"{key}.folder: {os.path.relpath(self._here, self._start)}"
        if not _is_local(section.use):  # it takes no folder
            line = os.path.relpath(absolute(found[0], self._here), self._start)
        self.warnings.append(
            f"{key}: {found[0]} is not in {self._start}, where paths of a pipeline file start, and "
            f"is taken from {self._here}, as by earlier versions: write `{line}`"
        )
        return section

    def _is_only_here(self, path: str) -> bool:
        there = os.path.lexists(absolute(path, self._start))
        return not there and os.path.lexists(absolute(path, self._here))


def _place(pipeline: Pipeline, start: str) -> Place:
    written = _lake(pipeline.destination)
    lake = None if written is None else absolute(written, start)
    relative = written is not None and _is_relative(written)
    sections = (pipeline.source, *pipeline.transforms, *pipeline.enrichments, pipeline.destination)
    named = [section.use for section in sections if _DOTTED.search(section.use)]
    reads = any(spec is not None and spec.queries for spec in map(_spec_of, named))
    return Place(
        folder=start, relative=relative or bool(named), reads=reads, lake=lake, written=written
    )


def _spec_of(use: str) -> ProtocolSpec | None:
    return specs().get(use.partition(":")[0])


def _is_table(section: ConnectorSection) -> bool:
    return section.use in table_formats()


def _key_of(section: ConnectorSection) -> str:
    return table_formats()[section.use].place


def _lake(section: ConnectorSection) -> str | None:
    """Returns the local path of a destination that is tables, as written; None: there is none."""
    if not _is_table(section) or _key_of(section) != "path":
        return None
    path = section.config.get("path")
    if not isinstance(path, str) or _URL.match(path) or path.startswith("catalog:"):
        return None
    return path


def _is_relative(path: str) -> bool:
    return not (path.startswith(("/", "~")) or _URL.match(path))


def _paths(section: ConnectorSection) -> Iterator[str]:
    """Yields what may be a relative path in a connector's reference and configuration: ``./x`` in
    the reference, each word of a command, each text of the configuration with a slash."""
    yield from _DOTTED.findall(section.use)
    words = section.use.partition(":")[2].split()
    if len(words) > 1 and not _queries(section.use):
        yield from filter(_may_be_path, words)
    yield from (text for text in _texts(section.config) if os.sep in text and _may_be_path(text))


def _is_local(use: str) -> bool:
    """Whether a reference is a file or a command of this machine."""
    body = use.partition(":")[2] or use
    return body.startswith((".", "/", "~")) or len(body.split()) > 1


def _may_be_path(text: str) -> bool:
    return _is_relative(text) and not text.startswith("-") and not re.search(r"\s", text)


def _queries(use: str) -> bool:
    spec = _spec_of(use)
    return spec is not None and bool(spec.queries)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(each)
    elif isinstance(value, str):
        yield value

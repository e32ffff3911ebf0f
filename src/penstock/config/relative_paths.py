"""Decides what the relative paths of a pipeline mean.

Paths in a pipeline file start at the file's folder, those of the command line at the folder in
which Penstock was started. Functions over a pipeline; they check whether files exist, and read
none. Not here: which of two folders has the tables (``engine.plan.place``). Neighbours:
``config.load`` and ``config.command_line`` call.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from penstock.config.named_files import (
    DOTTED,
    URL,
    Named,
    is_relative,
    may_be_path,
    named_in_config,
    named_in_use,
    queries,
    runs_here,
)
from penstock.config.pipeline import ConnectorSection, Pipeline
from penstock.config.place import Place, absolute, same_folder, working_folder, written_from
from penstock.config.table_formats import split_table, table_formats

S = TypeVar("S", bound=ConnectorSection)


def placed_here(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline of a command line with its place: its paths start at the folder in which
    Penstock was started."""
    return replace(pipeline, place=_place(pipeline, working_folder()))


def placed_by_name(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline of a command line without ``--name``, whose name has the absolute paths
    of its connectors and its tables. It has a place if another path is relative: in a query, a
    command or a configuration."""
    place = _place(pipeline, working_folder(), by_name=True)
    return replace(pipeline, place=place if place.relative else None)


def placed_again(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline of a file with the place of its tables from an option of the command
    line, whose path starts at the folder in which Penstock was started."""
    here = _place(pipeline, working_folder())
    place = pipeline.place or here
    lake = {"lake": here.lake, "written": here.written, "before": None}
    return replace(pipeline, place=msgspec.structs.replace(place, **lake))


def placed_at(pipeline: Pipeline, folder: Path) -> Pipeline:
    """Returns the pipeline of a file in ``folder`` with its place. Paths that Penstock reads itself
    become absolute where they start at another folder than Penstock does.

    Its connectors run in the file's folder. Earlier files, whose paths started at the folder in
    which Penstock was started, still work: a file, or a folder, that exists only there is taken
    from there, with a warning that has the line to write. For tables the ledger decides
    (``engine.plan.place``)."""
    here = working_folder()
    start = absolute(str(folder), here)
    same = same_folder(start, here)
    place = _place(pipeline, start) if same else _place(pipeline, start, here)
    place = msgspec.structs.replace(place, from_file=True)
    if same:
        return _held(replace(pipeline, place=place), start)
    moves = _Moves(start, here)
    source, destination = moves.section(pipeline.source, "source"), pipeline.destination
    if place.lake is not None and place.written is not None:
        key, before = _key_of(destination), absolute(place.written, here)
        place = msgspec.structs.replace(place, before=None if before == place.lake else before)
        config = {**destination.config, key: place.lake}
        destination = replace(destination, config=config)
    destination = moves.section(destination, "destination")
    transforms = tuple(moves.section(s, "transforms") for s in pipeline.transforms)
    enrichments = tuple(moves.section(s, "enrichments") for s in pipeline.enrichments)
    if moves.sections:
        place = msgspec.structs.replace(place, ran=here, moved=tuple(dict.fromkeys(moves.sections)))
    state, log = pipeline.state, pipeline.log
    moved = replace(
        pipeline,
        source=source,
        destination=destination,
        transforms=transforms,
        enrichments=enrichments,
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
    return _held(moved, here)


def as_written_in(folder: Path, value: Any) -> Any:
    """Returns a reference to a connector, or a configuration, from the command line, rewritten for
    a file in ``folder`` with the same meaning."""
    here = working_folder()
    start = absolute(str(folder), here)
    if same_folder(start, here):
        return value

    def moved(path: str) -> str:
        found = written_from(absolute(path, here), start)
        return found if found.startswith((".", os.sep)) else f"./{found}"

    def text(text: str) -> str:
        table = split_table(text)
        if table is not None and table[1] == "path":
            plain = is_relative(table[2]) and not table[2].startswith("catalog:")
            return f"{table[0]}:{moved(table[2])}" if table[2] and plain else text
        bare = [n.text for n in named_in_use(text) if not n.dotted and n.is_in(here)]
        text = DOTTED.sub(lambda m: m[0].replace(m[1], moved(m[1])), text)
        for word in bare:  # python3 tap.py
            pattern = rf"""(?<![^\s:='"`]){re.escape(word)}(?![^\s'"`])"""
            text = re.sub(pattern, lambda _, word=word: moved(word), text)
        return text

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: of(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list):
            return [of(v) for v in value]  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(value, str):
            return value
        name = Named(value, folders=False)
        return moved(value) if name.dotted or (may_be_path(value) and name.is_in(here)) else value

    return text(value) if isinstance(value, str) else of(value)


class _Moves:
    """Makes relative paths start at ``start``, the file's folder, instead of ``here``."""

    def __init__(self, start: str, here: str) -> None:
        self._start, self._here = start, here
        self.warnings: list[str] = []
        self.sections: list[str] = []  # whose connectors run in another folder than before

    def path(self, path: str | None, key: str) -> str | None:
        if path is None or not is_relative(path):
            return path
        if not self._is_only_here(Named(path)):
            return absolute(path, self._start)
        self._warn(key, [path], [written_from(absolute(path, self._here), self._start)])
        return absolute(path, self._here)

    def hook(self, hook: str | tuple[str, ...] | None, key: str) -> str | tuple[str, ...] | None:
        if not isinstance(hook, tuple) or not hook or os.sep not in hook[0]:
            return hook
        return (self.path(hook[0], f"{key}[0]") or hook[0], *hook[1:])

    def section(self, section: S, key: str) -> S:
        """Makes a connector run in the file's folder."""
        if section.folder is not None or _is_table(section):
            return section
        named = [*named_in_use(section.use), *named_in_config(section)]
        only_here = [each.text for each in named if self._is_only_here(each)]
        is_at_file = any(each.is_in(self._start) for each in named)
        if only_here and not is_at_file:
            self._warn(key, only_here, self._lines(section, key, only_here))
            return section
        if runs_here(section.use) and not is_at_file:
            self.sections.append(key)
        return replace(section, folder=self._start)

    def _lines(self, section: ConnectorSection, key: str, paths: Sequence[str]) -> list[str]:
        if runs_here(section.use):
            return [f"{key}.folder: {written_from(self._here, self._start)}"]
        return [written_from(absolute(path, self._here), self._start) for path in paths]

    def _warn(self, key: str, paths: Sequence[str], lines: Sequence[str]) -> None:
        is_, are = ("is not", "is") if len(paths) == 1 else ("are not", "are")
        self.warnings.append(
            f"{key}: {', '.join(paths)} {is_} in {self._start}, where paths of a pipeline file "
            f"start, and {are} taken from {self._here}, as by earlier versions: write "
            f"{', '.join(f'`{line}`' for line in lines)}"
        )

    def _is_only_here(self, name: Named) -> bool:
        return not name.is_in(self._start) and name.is_in(self._here)


def _place(pipeline: Pipeline, start: str, *others: str, by_name: bool = False) -> Place:
    """``others``: folders from which a connector's files may be taken instead; ``by_name``: see
    :func:`placed_by_name`."""
    written = _lake(pipeline.destination)
    lake = None if written is None else absolute(written, start)
    uses, reads = False, False
    sections = (pipeline.source, *pipeline.transforms, *pipeline.enrichments, pipeline.destination)
    for section in filter(lambda each: not _is_table(each), sections):
        folders = (start, *others)
        if section.folder is not None:
            if not section.folder.startswith(f"{start}{os.sep}"):  # it was written as absolute
                continue
            folders = (section.folder,)
        in_name = by_name and len(section.use.split()) == 1

        def has(named: Iterable[Named], folders: tuple[str, ...] = folders) -> bool:
            return any(each.dotted or any(map(each.is_in, folders)) for each in named)

        uses |= has([] if in_name else named_in_use(section.use))
        reads |= has(named_in_config(section)) or has(named_in_use(_read_by(section.use)))
    relative = uses or reads or (not by_name and written is not None and is_relative(written))
    return Place(folder=start, relative=relative, reads=reads, lake=lake, written=written)


def _read_by(use: str) -> str:
    """Returns the part of a reference whose files do not identify the connector: a query, the
    options of a command."""
    protocol, _, body = use.partition(":")
    options = re.search(r"\s-.*", body, re.S)
    return use if queries(use) else f"{protocol}:-{options[0] if options else ''}"


def _held(pipeline: Pipeline, here: str) -> Pipeline:
    """Returns the pipeline with the folders that its containers may open as absolute ones. They
    start where the container's connector would run: its own folder, else ``here``."""

    def held(section: S) -> S:
        permissions = section.permissions
        fs = permissions and permissions.fs
        if not permissions or not fs or not fs.allowed_preopens or not _is_image(section.use):
            return section
        start = section.folder or here
        folders = tuple(absolute(folder, start) for folder in fs.allowed_preopens)
        fs = replace(fs, allowed_preopens=folders)
        return replace(section, permissions=replace(permissions, fs=fs))

    return replace(
        pipeline,
        source=held(pipeline.source),
        destination=held(pipeline.destination),
        transforms=tuple(map(held, pipeline.transforms)),
        enrichments=tuple(map(held, pipeline.enrichments)),
    )


def _is_image(use: str) -> bool:
    return use.partition(":")[2].startswith("docker:")


def _is_table(section: ConnectorSection) -> bool:
    return section.use in table_formats()


def _key_of(section: ConnectorSection) -> str:
    return table_formats()[section.use].place


def _lake(section: ConnectorSection) -> str | None:
    """Returns the local path of a destination's tables, as written, or None."""
    if not _is_table(section) or _key_of(section) != "path":
        return None
    path = section.config.get("path")
    if not isinstance(path, str) or URL.match(path) or path.startswith("catalog:"):
        return None
    return path

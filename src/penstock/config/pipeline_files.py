"""Reads several pipeline files, named one by one or by their folder, as a project of these
pipelines, under their own names.

All files are read before any pipeline runs, and their faults are one error. Not here: one file
(``config.load``), which folders are projects of a protocol (``config.project``), runs
(``engine.run.run_all``).
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project, ProjectSelection, chosen
from penstock.config.protocol_spec import specs
from penstock.config.table_formats import table_formats
from penstock.errors import ConfigError

FILE_ENDINGS = (".yaml", ".yml")
STDIN = "-"
COMPONENT = ".wasm"


def files_of(folder: Path) -> list[str]:
    """Returns the pipeline files of a folder, sorted by name: all that end in ``.yaml`` or ``.yml``
    and are not hidden. Subfolders are skipped. Raises ``ConfigError`` (``config.unreadable``)."""
    try:
        found = sorted(p for p in folder.iterdir() if p.suffix in FILE_ENDINGS and p.is_file())
    except OSError as e:
        raise ConfigError(
            f"the folder cannot be read: {e.strerror or e}",
            code="config.unreadable",
            where=str(folder),
            hint="give a folder of pipeline files that you may read",
        ) from e
    return [str(p) for p in found if not p.name.startswith(".")]


def read_files(
    files: Sequence[str],
    wanted: ProjectSelection,
    *,
    lenient: bool = False,
    profile: str | None = None,
) -> Project:
    """Reads the files as a project whose pipelines have their own names as ids; ``wanted.select``
    chooses among them. ``lenient``, ``profile``: see ``load_pipeline``. Raises ``ConfigError`` with
    every fault of every file in ``problems``, also (``config.same_name``) where two share a name,
    and so a state."""
    found: dict[str, Pipeline] = {}
    faults: list[ConfigError] = []
    problems: list[str] = []
    repeated = [f for f in dict.fromkeys(files) if files.count(f) > 1]
    if repeated:
        raise ConfigError(
            f"{repeated[0]} is named twice", code="usage", hint="name each pipeline file once"
        )
    for file in files:
        try:
            pipeline = load_pipeline(
                file, wanted.environ, wanted.env_files, lenient=lenient, profile=profile
            )
        except ConfigError as e:
            faults.append(e)
            problems += e.problems or [e.message]
            continue
        name = pipeline.pipeline
        if name in found:
            problems.append(f"{file}: {found[name].origin} is called {name} too")
            faults.append(
                ConfigError(
                    problems[-1],
                    code="config.same_name",
                    where=file,
                    hint="a pipeline's state is saved under its name: rename one of them",
                )
            )
            continue
        found[name] = pipeline
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise ConfigError(
            f"{len(faults)} of {len(files)} pipeline files have faults",
            problems=problems,
            code=faults[0].code,
            where=faults[0].where,
            hint=faults[0].hint,
        )
    names = chosen(list(found), wanted.select, wanted.folder)
    return Project(name=None, pipelines={name: found[name] for name in names})


def is_file(word: str) -> bool:
    """Returns whether ``word`` names a pipeline file. False for a pipeline's name, and for a
    connector whose manifest or last word has a pipeline file's suffix."""
    if word.endswith(COMPONENT):
        return False
    if word == STDIN or Path(word).is_file():
        return True
    return word.endswith(FILE_ENDINGS) and not _begins_as_a_connector(word)


def _begins_as_a_connector(word: str) -> bool:
    """Returns whether ``word`` begins with a protocol or a table format and a colon."""
    head, colon, _ = word.partition(":")
    return bool(colon) and head in (*table_formats(), *specs())

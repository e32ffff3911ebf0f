"""Defines a project, several pipelines that run one after the other, and finds the project in a
folder by the files of a protocol's own host.

The protocols' specs define which folders are projects (``ProtocolSpec.project_folders``); the
protocol's ``project`` module turns the files into pipelines. Each is then a normal pipeline, with a
name, a state and reports of its own. Not here: the files (``protocols.NAME.project``,
``config.pipeline_files``), runs (``engine.run.run_all``).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.config.did_you_mean import hint
from penstock.config.pipeline import Pipeline
from penstock.config.protocol_spec import specs
from penstock.errors import ConfigError


class ProjectSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The selection from a project. ``select``: the ids of its pipelines; empty: all that are not
    disabled. ``name``: the project's, for the names of its pipelines; None: its folder's.
    ``environ``: the process's variables; ``env_files``: files with more variables, a later one
    first."""

    folder: Path
    environ: Mapping[str, str]
    env_files: Sequence[str] = ()
    select: Sequence[str] = ()
    name: str | None = None


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project that was read. ``name``: None for pipeline files (``config.pipeline_files``).
    ``pipelines``: by their ids in the project, in the order in which they run. ``notes``: messages
    about it."""

    name: str | None
    pipelines: dict[str, Pipeline]
    notes: tuple[str, ...] = ()


ReadProject = Callable[[ProjectSelection], Project]
"""Reads a project. Raises ``ConfigError`` with every fault of the selected pipelines in
``problems``."""


def project_protocol(folder: Path) -> str | None:
    """Returns the protocol whose projects look like this folder, or None."""
    for spec in specs().values():
        if any((folder / name).is_dir() for name in spec.project_folders):
            return spec.name
    return None


def no_project(folder: Path) -> ConfigError:
    """Returns the error (``config.project``) for a folder with nothing to run."""
    forms = [
        f"{', '.join(f'{name}/' for name in spec.project_folders)} ({spec.name})"
        for spec in specs().values()
        if spec.project_folders
    ]
    return ConfigError(
        f"{folder} has no pipeline files, and is not a project",
        code="config.project",
        where=str(folder),
        hint=f"pipeline files end in .yaml or .yml; a project has {' or '.join(forms)}",
    )


def chosen(known: Sequence[str], wanted: Sequence[str], folder: Path) -> list[str]:
    """Returns the selected ids in the order of ``known``. Raises ``ConfigError``
    (``config.unknown_sync``)."""
    unknown = [word for word in dict.fromkeys(wanted) if word not in known]
    if unknown:
        problems = [f"--select: there is no {w!r}; {hint(w, known)}" for w in unknown]
        raise ConfigError(
            problems[0],
            problems=problems,
            code="config.unknown_sync",
            where=str(folder),
            hint=f"there is: {', '.join(known) or 'none'}",
        )
    return [name for name in known if name in wanted] if wanted else list(known)

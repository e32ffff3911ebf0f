"""Loads what names a pipeline (a file, two connectors, the name of one that ran) or several (files,
a folder with files, a project).

Not here: parsing (``config``), connectors. Callers mask the secrets of the pipelines in all that
they print (L10).
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.config.command_line import Options, pipeline_from_arguments, with_options
from penstock.config.load import EnvFiles, load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.pipeline_files import COMPONENT, files_of, is_file, read_files
from penstock.config.project import Project, ProjectSelection, no_project, project_protocol
from penstock.config.protocol_spec import specs
from penstock.config.table_formats import table_formats
from penstock.errors import ConfigError
from penstock.protocols import project_reader


def is_connector(word: str) -> bool:
    """Returns whether ``word`` has the form of a CONNECTOR; it need not exist."""
    named = ":" in word or word in (*table_formats(), *specs())
    return named or " " in word or word.endswith(COMPONENT)


def pipeline_of(
    first: str,
    second: str | None,
    options: Options,
    *,
    env_file: EnvFiles = None,
    lenient: bool = False,
    profile: str | None = None,
    starts_none: bool = False,
) -> Pipeline:
    """Loads the pipeline of a file, or of a source and a destination, overridden by ``options``.
    ``starts_none``: as in ``load_pipeline``. Raises ``ConfigError``."""
    for word in (first, second or ""):
        if word.lstrip().startswith("{"):  # never quoted: it may hold a password
            raise ConfigError(
                "expected a connector, not a configuration",
                code="usage",
                hint="write --config before it",
            )
    if second is not None:
        if is_file(first):
            raise ConfigError(
                f"{first} is a pipeline file, and {second} is not",
                code="usage",
                hint="give pipeline files, or a source and a destination",
            )
        if profile is not None:
            raise ConfigError(
                "profiles need a pipeline file, not a source and a destination",
                code="usage",
                hint="write a pipeline file with `profiles`, or leave --with out",
            )
        return pipeline_from_arguments(first, second, **msgspec.structs.asdict(options))
    if is_connector(first) and not is_file(first):
        raise ConfigError(
            f"{first!r} is a connector, and no destination is named",
            code="usage",
            hint=f"name both, as in: penstock run {first} parquet:./lake",
        )
    found = load_pipeline(
        first, env_file=env_file, lenient=lenient, profile=profile, starts_none=starts_none
    )
    return with_options(found, options)


def pipeline_or_name(
    words: Sequence[str],
    *,
    env_file: EnvFiles = None,
    lenient: bool = False,
    profile: str | None = None,
    name: str | None = None,
    starts_none: bool = False,
) -> Pipeline | str:
    """Loads the pipeline of a file, or of a source and a destination, or returns the name of a
    pipeline that ran. ``name``: the one under which it ran (``--name``). ``starts_none``: as in
    ``load_pipeline``. Raises ``ConfigError``."""
    if len(words) > 2:
        raise ConfigError(
            "more arguments than a pipeline takes",
            code="usage",
            hint="PIPELINE is a pipeline file, SOURCE DESTINATION, or the name of one that ran",
        )
    first, second = words[0], words[1] if len(words) > 1 else None
    if second is None and not is_file(first) and not is_connector(first):
        if name is not None:
            raise ConfigError(
                f"--name goes with a file or SOURCE DESTINATION; {first} is a name already",
                code="usage",
                hint="leave --name out, or name the file",
            )
        return first if profile is None else f"{first}.{profile}"
    return pipeline_of(
        first, second, Options(name=name), env_file=env_file, lenient=lenient, profile=profile,
        starts_none=starts_none,
    )  # fmt: skip


def are_several(words: Sequence[str]) -> bool:
    """Returns whether the words name several pipelines: files, or a folder. Raises ``ConfigError``
    for three or more words that are not all files."""
    if len(words) == 1:
        return Path(words[0]).is_dir()
    files = [is_file(word) for word in words]
    if len(words) > 2 and not all(files):
        raise ConfigError(
            f"{words[files.index(False)]} is not a pipeline file, and more than two arguments are "
            "given",
            code="usage",
            hint="give pipeline files, or a source and a destination",
        )
    return all(files)


def project_of(
    words: Sequence[str],
    select: Sequence[str],
    options: Options,
    *,
    env_file: EnvFiles = None,
    lenient: bool = False,
    profile: str | None = None,
) -> Project:
    """Loads several pipelines, each overridden by ``options``: of files, of a folder with files, or
    of a project's folder. ``select``: only these. Raises ``ConfigError``."""
    place = Path(words[0])
    listed = [env_file] if isinstance(env_file, (str, Path)) else env_file or ()
    wanted = ProjectSelection(
        folder=place,
        environ=os.environ,
        env_files=tuple(str(file) for file in listed),
        select=list(select),
        name=options.name,
    )
    protocol = project_protocol(place) if place.is_dir() else None
    if protocol is not None:
        if profile is not None:
            raise ConfigError(
                "--with goes with pipeline files; a project has none",
                code="usage",
                hint="a project's environments are its files .env and .env.local",
            )
        found = project_reader(protocol)(wanted)
    else:
        files = files_of(place) if place.is_dir() else words
        if not files:
            raise no_project(place)
        if options.name is not None:
            raise ConfigError(
                "--name names one pipeline; several are given",
                code="usage",
                hint="each file names its own pipeline: `pipeline: NAME`",
            )
        found = read_files(files, wanted, lenient=lenient, profile=profile)
    own = msgspec.structs.replace(options, name=None)
    made = {id_: with_options(p, own) for id_, p in found.pipelines.items()}
    return msgspec.structs.replace(found, pipelines=made)

"""Defines the options that verbs share, and reads the pipeline that a command names.

Not here: which words name a pipeline (``api.pipelines``). The pipeline's secrets are passed to the
:class:`~penstock.terminal.output.Output`, so that it masks them (L10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from penstock.api import pipelines
from penstock.api.pipelines import are_several, pipeline_of, project_of
from penstock.config.command_line import Options
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project
from penstock.config.sections import Install
from penstock.config.selectors import parse_config
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config.home import Home
    from penstock.terminal.output import Output


def option(name: str, metavar: str, meaning: str, **more: Any) -> Any:
    """Returns an option that takes a value, without a default."""
    return typer.Option(name, metavar=metavar, help=meaning, show_default=False, **more)


Config = Annotated[str | None, option("--config", "JSON|@FILE", "The source's configuration.")]
DestinationConfig = Annotated[
    str | None, option("--destination-config", "JSON|@FILE", "The destination's configuration.")
]
Destination = Annotated[
    str | None,
    typer.Argument(
        metavar="DESTINATION",
        help="Destination; the first argument is then the source.",
        show_default=False,
    ),
]

More = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PIPELINE", help="More pipeline files, each of one pipeline.", show_default=False
    ),
]
Select = Annotated[
    str | None,
    option("--select", "A,B", "Only these pipelines of a folder, or syncs of a project."),
]


@dataclass(frozen=True, slots=True)
class PipelineFileOptions:
    """The options of verbs that read a pipeline file."""

    env_file: Annotated[
        list[str] | None,
        option(
            "--env-file",
            "FILE",
            "File of NAME=value lines for ${NAME}; the environment wins. May be repeated.",
        ),
    ] = None
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Unknown keys of the pipeline file are warnings.")
    ] = False
    with_profile: Annotated[
        str | None,
        option("--with", "PROFILE", "Puts this one of the file's `profiles` over its other keys."),
    ] = None
    name: Annotated[
        str | None, option("--name", "NAME", "Name of the pipeline and of its saved state.")
    ] = None

    def named(self, options: Options) -> Options:
        """Returns the options with the command's pipeline name."""
        return options if self.name is None else replace(options, name=self.name)


READING = PipelineFileOptions()


def as_read(options: Sequence[str]) -> PipelineFileOptions:
    """Returns the options with which a file was read (``store.remembered.UsedFile``)."""
    values: dict[str, list[str]] = {}
    words = iter(options)
    for word in words:
        values.setdefault(word, []).extend([] if word == "--lenient" else [next(words)])
    profile, name = (values.get(option, [None])[0] for option in ("--with", "--name"))
    return PipelineFileOptions(
        env_file=values.get("--env-file"),
        lenient="--lenient" in values,
        with_profile=profile,
        name=name,
    )


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """The options of verbs that may build a connector's environment."""

    constraint: Annotated[
        list[str] | None,
        option(
            "--constraint",
            "REQUIREMENT",
            "Bounds a dependency of an old connector, as in 'pydantic<2'. May be repeated.",
        ),
    ] = None
    no_builds: Annotated[
        bool, typer.Option("--no-builds", help="Refuse packages that must be built from source.")
    ] = False

    def install(self) -> Install:
        """Returns the install settings of a connector that is named without a pipeline."""
        return Install(builds=not self.no_builds, constraints=tuple(self.constraint or ()))


BUILDING = BuildOptions()


def pipeline(
    words: Sequence[str], reading: PipelineFileOptions, options: Options, output: "Output"
) -> Pipeline:
    """Loads the pipeline of ``FILE`` or of ``SOURCE DESTINATION``, overridden by the command's
    options. Raises ``ConfigError``."""
    first, second = words[0], words[1] if len(words) > 1 else None
    found = pipeline_of(
        first,
        second,
        reading.named(options),
        env_file=tuple(reading.env_file or ()),
        lenient=reading.lenient,
        profile=reading.with_profile,
    )
    return _announced(found, output)


def pipeline_or_name(
    words: list[str], reading: PipelineFileOptions, output: "Output", *, starts_none: bool = False
) -> "Pipeline | str":
    """Loads the pipeline of ``FILE`` or of ``SOURCE DESTINATION``, or returns the name of a
    pipeline that ran. ``starts_none``: as in ``load_pipeline``. Raises ``ConfigError``."""
    found = pipelines.pipeline_or_name(
        words,
        env_file=tuple(reading.env_file or ()),
        lenient=reading.lenient,
        profile=reading.with_profile,
        name=reading.name,
        starts_none=starts_none,
    )
    return found if isinstance(found, str) else _announced(found, output)


def pipeline_with_file(
    words: list[str], reading: PipelineFileOptions, output: "Output", home: "Home"
) -> Pipeline:
    """Loads the pipeline that a command names; by name, from the file of its last run, with the
    same options. Raises ``ConfigError``."""
    from penstock.engine.inspect.pipelines import open_known

    named = pipeline_or_name(words, reading, output)
    if isinstance(named, Pipeline):
        return named
    with open_known(named, home) as known:
        file = known.store.remembered(known.name, ()).file
    if file is None or not Path(file.path).is_file():
        where = "" if file is None else f": the last run read {file.path}, which is not there"
        raise ConfigError(
            f"the pipeline {named!r} has no pipeline file on this machine{where}",
            code="config.not_found",
            hint="name its file, or its SOURCE and DESTINATION",
        )
    found = pipeline([file.path], as_read(file.options), Options(), output)
    if found.pipeline != named:
        raise ConfigError(
            f"{file.path}, which the last run of {named!r} read, is of the pipeline"
            f" {found.pipeline!r} now",
            code="config.not_found",
            hint=f"name the file of {named!r}",
        )
    return found


def _announced(found: Pipeline, output: "Output") -> Pipeline:
    """Hides the pipeline's secrets in the output, and prints its warnings."""
    output.hide(found.secret_values)
    for warning in found.warnings:
        output.say(f"warning: {warning}")
    return found


def project(
    words: Sequence[str],
    select: str | None,
    reading: PipelineFileOptions,
    options: Options,
    output: "Output",
) -> Project | None:
    """Reads the project that the words of a command name, with the command's options on each of its
    pipelines: several pipeline files, or a folder with a project or with pipeline files. None:
    they name one pipeline. Raises ``ConfigError``."""
    if not are_several(words):
        if select is not None:
            named = " and ".join(words)
            raise ConfigError(
                f"--select chooses among several pipelines, and {named} names one at most",
                code="usage",
                hint="give a folder; --streams chooses streams of one pipeline",
            )
        return None
    found = project_of(
        words,
        [word.strip() for word in (select or "").split(",") if word.strip()],
        reading.named(options),
        env_file=tuple(reading.env_file or ()),
        lenient=reading.lenient,
        profile=reading.with_profile,
    )
    for each in found.pipelines.values():
        _announced(each, output)
    for note in found.notes:
        output.say(f"note: {note}")
    return found


def connector_config(given: str | None) -> dict[str, Any]:
    """Parses the configuration of ``--config``. Raises ``ConfigError``, which never quotes it."""
    return {} if given is None else parse_config(given)

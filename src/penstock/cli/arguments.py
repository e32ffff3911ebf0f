"""Sorts the words of a command: a pipeline file, two connectors, one connector, or a pipeline's
name.

Not here: reading them (``config``, ``connectors``). Secrets of what was read are passed to the
:class:`~penstock.cli.output.Output`, so that it masks them (L10).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.config.command_line import Options, pipeline_from_arguments, with_options
from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project, Wanted, project_protocol
from penstock.config.protocol_spec import specs
from penstock.config.sections import Install
from penstock.config.selectors import parse_config
from penstock.config.table_reference import TABLES
from penstock.errors import ConfigError
from penstock.protocols import project_reader

if TYPE_CHECKING:
    from penstock.cli.output import Output


def option(name: str, metavar: str, meaning: str, **more: Any) -> Any:
    """Returns an option that has a value, and none by default."""
    return typer.Option(name, metavar=metavar, help=meaning, show_default=False, **more)


Config = Annotated[str | None, option("--config", "JSON|@FILE", "The source's configuration.")]
DestinationConfig = Annotated[
    str | None, option("--destination-config", "JSON|@FILE", "The destination's configuration.")
]
Destination = Annotated[
    str | None,
    typer.Argument(
        metavar="DESTINATION",
        help="Where to; the first argument is then the source.",
        show_default=False,
    ),
]

Select = Annotated[str | None, option("--select", "A,B", "Of a project's folder only these syncs.")]

_FILE_ENDINGS = (".yaml", ".yml")
_COMPONENT = ".wasm"


@dataclass(frozen=True, slots=True)
class Reading:
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


READING = Reading()


@dataclass(frozen=True, slots=True)
class Building:
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


BUILDING = Building()


def is_file(word: str) -> bool:
    """Whether ``word`` names a pipeline file rather than a connector or a pipeline's name."""
    if word.endswith(_COMPONENT):
        return False
    return word == "-" or word.endswith(_FILE_ENDINGS) or Path(word).is_file()


def is_connector(word: str) -> bool:
    """Whether ``word`` has the form of a CONNECTOR; it need not exist."""
    head, colon, _ = word.partition(":")
    return bool(colon) or head in (*TABLES, *specs()) or " " in word or word.endswith(_COMPONENT)


def pipeline(
    first: str, second: str | None, reading: Reading, options: Options, output: "Output"
) -> Pipeline:
    """Loads the pipeline of ``FILE`` or of ``SOURCE DESTINATION``, overridden by the command's
    options. Raises ``ConfigError``."""
    for word in (first, second or ""):
        if word.lstrip().startswith("{"):  # never quoted: it may hold a password
            raise ConfigError(
                "a configuration stands where a connector is wanted",
                code="usage",
                hint="write --config before it",
            )
    if second is not None:
        if is_file(first):
            raise ConfigError(
                f"{first} is a pipeline file, and nothing may follow it",
                code="usage",
                hint="give one pipeline file, or a source and a destination",
            )
        found = pipeline_from_arguments(first, second, **msgspec.structs.asdict(options))
    elif is_connector(first) and not is_file(first):
        raise ConfigError(
            f"{first!r} is a connector, and no destination is named",
            code="usage",
            hint=f"name both, as in: penstock run {first} parquet:./lake",
        )
    else:
        found = with_options(_load(first, reading), options)
    output.hide(found.secret_values)
    for warning in found.warnings:
        output.say(f"warning: {warning}")
    return found


def project(
    folder: str,
    select: str | None,
    reading: Reading,
    options: Options,
    output: "Output",
) -> Project:
    """Reads the project in ``folder``, with the command's options on each of its pipelines. Raises
    ``ConfigError``."""
    place = Path(folder)
    read = project_reader(project_protocol(place))
    found = read(
        Wanted(
            folder=place,
            environ=os.environ,
            env_files=tuple(reading.env_file or ()),
            select=[word.strip() for word in (select or "").split(",") if word.strip()],
            name=options.name,
        )
    )
    own = msgspec.structs.replace(options, name=None)
    pipelines = {id_: with_options(p, own) for id_, p in found.pipelines.items()}
    for each in pipelines.values():
        output.hide(each.secret_values)
        for warning in each.warnings:
            output.say(f"warning: {warning}")
    for note in found.notes:
        output.say(f"note: {note}")
    return msgspec.structs.replace(found, pipelines=pipelines)


def is_project(first: str, second: str | None, select: str | None) -> bool:
    """Whether the words of a command name a project's folder. Raises ``ConfigError`` for
    ``--select`` of anything else."""
    found = second is None and Path(first).is_dir()
    if select is not None and not found:
        raise ConfigError(
            "--select chooses syncs of a project, and no project's folder is named",
            code="usage",
            hint="of a pipeline's streams --streams chooses",
        )
    return found


def pipeline_or_name(words: list[str], reading: Reading, output: "Output") -> "Pipeline | str":
    """Loads the pipeline of ``FILE`` or of ``SOURCE DESTINATION``, or returns the name of a
    pipeline that ran. Raises ``ConfigError``."""
    if len(words) > 2:
        raise ConfigError(
            "more words than a pipeline takes",
            code="usage",
            hint="PIPELINE is a pipeline file, SOURCE DESTINATION, or the name of one that ran",
        )
    first, second = words[0], words[1] if len(words) > 1 else None
    if second is None and not is_file(first) and not is_connector(first):
        return first
    return pipeline(first, second, reading, Options(), output)


def connector_config(given: str | None) -> dict[str, Any]:
    """Parses the configuration of ``--config``. Raises ``ConfigError``, which never quotes it."""
    return {} if given is None else parse_config(given)


def _load(word: str, reading: Reading) -> Pipeline:
    return load_pipeline(word, env_file=tuple(reading.env_file or ()), lenient=reading.lenient)

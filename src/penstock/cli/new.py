"""Defines the verb ``new``: prompts for a source and a destination, writes a commented pipeline
file, checks it.

Never overwrites a file, and never writes a secret: secrets become variables. Neighbours:
``api.new_file`` writes the text, ``inspect_connector`` is ``check`` alone.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.api.asking import asked_spec, reference, source_reference
from penstock.api.new_file import (
    FileEnd,
    FileVariable,
    Question,
    file_end,
    pipeline_text,
    questions,
    short_name,
)
from penstock.api.roles import AskedRole
from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.cli.consent import Yes, settle
from penstock.cli.inspect_connector import check_code, check_text, checked, pipeline_checked
from penstock.config.command_line import parse_name
from penstock.config.load import load_pipeline
from penstock.config.relative_paths import as_written_in
from penstock.config.sections import Install
from penstock.config.selectors import parse_config
from penstock.errors import ConfigError, PenstockError
from penstock.model.catalog import ConnectorSpec
from penstock.terminal.progress import watching

if TYPE_CHECKING:
    from penstock.config.pipeline import Pipeline
    from penstock.connectors.reference import ConnectorRef

_DESTINATION = "parquet:./lake"
_OFFERED = 5


@verb(
    "penstock new",
    "penstock new airbyte:source-faker parquet:./lake",
    "penstock new singer:tap-github delta:./lake --file github.yaml",
)
def new(
    surface: Surface,
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="Where from.", show_default=False)
    ] = None,
    destination: arguments.Destination = None,
    file: Annotated[
        str | None, arguments.option("--file", "FILE", "Default: the pipeline's name, .yaml.")
    ] = None,
    name: Annotated[
        str | None,
        arguments.option(
            "--name", "NAME", "The pipeline's name. Default: the file's, else the source's."
        ),
    ] = None,
    config: arguments.Config = None,
    destination_config: arguments.DestinationConfig = None,
    building: arguments.BuildOptions = arguments.BUILDING,
    yes: Yes = False,
) -> int:
    """Write a commented pipeline file for a source and a destination, and check it."""
    user = _User(surface)
    source = source or user.connector(
        "Source", AskedRole.source, lambda: user.must("Source", "airbyte:source-faker, or a word")
    )
    source_ref = source_reference(source)
    destination = destination or user.connector(
        "Destination", AskedRole.destination, lambda: user.may("Destination", _DESTINATION)
    )
    into = reference(destination)
    name = name or (Path(file).stem if file else "")
    name = parse_name(name or user.may("Name of the pipeline", short_name(source_ref)))
    path = Path(file or re.sub(r"[^\w.-]+", "-", name) + ".yaml")
    if path.exists():
        raise _there_already(path)
    install = building.install()
    ends = [
        _end(surface, source_ref, AskedRole.source, config, install, yes),
        _end(surface, into, AskedRole.destination, destination_config, install, yes),
    ]
    ends = [end._replace(given={**end.given, **user.answers(end)}) for end in ends]
    ends = [_placed(end, path.parent) for end in ends]
    text, variables = pipeline_text(name, *ends)
    _write_new(path, text)
    missing = [v.name for v in variables if v.name not in os.environ]
    answer: dict[str, Any] = {
        "file": str(path),
        "pipeline": name,
        "variables": [{**v._asdict(), "set": v.name not in missing} for v in variables],
        "check": None,
    }
    code = 0
    if not missing:
        pipeline = load_pipeline(path, env=os.environ)
        answer["check"], code = _check(surface, pipeline, yes=yes)
    surface.output.answer(answer, lambda: _text(path, variables, missing, answer["check"]))
    return code


def _placed(end: FileEnd, folder: Path) -> FileEnd:
    """Returns the end with its paths as a file in ``folder`` writes them."""
    return end._replace(use=as_written_in(folder, end.use), given=as_written_in(folder, end.given))


def _write_new(path: Path, text: str) -> None:
    """Raises ``ConfigError`` where the file exists or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise _there_already(path) from None
    except OSError as e:
        raise ConfigError(f"{path} cannot be written: {e.strerror}", code="config.file") from None


def _check(surface: Surface, pipeline: "Pipeline", *, yes: bool) -> tuple[dict[str, Any], int]:
    """Returns the answer of ``penstock check`` and its exit code: the file exists in any case."""
    surface.output.hide(pipeline.secret_values)
    try:
        result = checked(pipeline_checked(surface, pipeline, yes=yes))
    except PenstockError as e:
        error = e.as_report()
        return {"status": "failed", "message": error["message"], "error": error}, e.exit_code
    return result, check_code(result)


def _text(
    path: Path, variables: list[FileVariable], missing: list[str], check: dict[str, Any] | None
) -> list[str]:
    lines = [f"wrote {path}"]
    if missing:
        lines.append("set these variables, in the environment or in a file for --env-file:")
        width = max(len(v.name) for v in variables)
        lines += [
            f"  {v.name:<{width}}  {v.property}{' (secret)' if v.secret else ''}"
            for v in variables
            if v.name in missing
        ]
        lines.append(f"then: penstock check {path}")
    if check is not None:
        lines.append(f"check: {check_text(check)}")
        if check["status"] == "succeeded":
            lines.append(f"next: penstock plan {path}, penstock run {path}")
    return lines


def _end(
    surface: Surface,
    ref: "ConnectorRef",
    role: AskedRole,
    config: str | None,
    install: Install,
    yes: bool,
) -> FileEnd:
    """Requests a connector's specification. The file names a package with the version that
    answered."""
    given = {} if config is None else parse_config(config)
    if ref.format is not None:
        if given:
            raise ConfigError(
                f"{ref.text} is a table, whose options this verb does not write",
                code="usage",
                hint="write them into the file: destination.config",
            )
        return FileEnd(ref.text)
    with watching(surface.output) as observer:
        found = asked_spec(
            ref, role, surface.home, observer, install,
            lambda wanted: settle(surface, wanted, yes=yes),
        )  # fmt: skip
    hidden = _secrets(found.spec, given, found.secret_word)
    return file_end(found)._replace(given=given, hidden=hidden)


def _secrets(spec: ConnectorSpec, given: dict[str, Any], secret_word: str | None) -> frozenset[str]:
    """Returns the names of those values that are secrets. Raises ``ConfigError`` where an object
    holds one: the file would contain it."""
    from penstock.protocols.json_schema.config_check import secret_values

    found = {n for n, v in given.items() if secret_values(spec.config_schema, {n: v}, secret_word)}
    for name in found:
        if isinstance(given[name], (dict, list)):
            raise ConfigError(
                f"config.{name} is a secret, which the file would show",
                code="config.secret",
                hint=f"leave {name} out: the file then has a variable in the secret's place",
            )
    return frozenset(found)


def _found(word: str, role: AskedRole) -> list[str]:
    """Returns the connectors that a word finds, the best first; empty if it is a reference."""
    from penstock.connectors.catalog.search import search

    with suppress(ConfigError):
        reference(word)
        return []
    with suppress(ConfigError):  # the index is damaged, which `search` reports
        hits = search(word.split(), role.value)
        return [hit.connector for hit in hits if hit.connector][:_OFFERED]
    return []


def _there_already(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} exists already, and was not changed",
        code="config.exists",
        hint="name another file: --file FILE",
    )


class _User:
    """Prompts the user where stdin and stderr are a terminal; else nobody answers."""

    def __init__(self, surface: Surface) -> None:
        self._output = surface.output
        self._there = (
            surface.output.interactive and not surface.output.as_json and sys.stdin.isatty()
        )

    def must(self, what: str, hint: str) -> str:
        """Returns an answer. Raises ``ConfigError`` without one."""
        for _ in range(3 if self._there else 0):
            if said := self._ask(f"{what} ({hint}): "):
                return said
        raise ConfigError(
            f"no {what.lower()} is named",
            code="usage",
            hint="penstock new SOURCE DESTINATION; `penstock search WORDS` finds a source",
        )

    def may(self, what: str, default: str) -> str:
        """Returns an answer, or the default."""
        return (self._ask(f"{what} [{default}]: ") if self._there else "") or default

    def connector(self, what: str, role: AskedRole, ask: Callable[[], str]) -> str:
        """Returns a reference. Other words are looked up in the index, and its results are offered
        by number."""
        said, offered = ask(), list[str]()
        while self._there:
            if said.isdecimal() and 0 < int(said) <= len(offered):
                return offered[int(said) - 1]
            offered = _found(said, role)
            if not offered:
                break
            for number, each in enumerate(offered, 1):
                self._output.say(f"  {number}  {each}")
            said = self._ask(f"{what}, a number or a connector [1]: ") or offered[0]
        return said

    def answers(self, end: FileEnd) -> dict[str, Any]:
        """Returns the user's values of required properties that are not secrets; an empty line
        leaves a variable in the file."""
        if not self._there or end.schema is None:
            return {}
        said = {q.name: self._value(q) for q in questions(end)}
        return {name: value for name, value in said.items() if value is not None}

    def _value(self, question: Question) -> Any:
        choices = f" ({', '.join(map(str, question.choices))})" if question.choices else ""
        if question.help:
            self._output.say(f"  {question.help}")
        for _ in range(3):
            said = self._ask(f"{question.name}{choices}, empty: later, by a variable: ")
            if not said:
                return None
            if question.kind == "string":
                value: Any = said
            else:
                try:
                    value = msgspec.json.decode(said)
                except msgspec.DecodeError:
                    self._output.say(f"  that is not of type {question.kind}")
                    continue
            if not question.choices or value in question.choices:
                return value
            self._output.say("  choose one of these")
        return None

    def _ask(self, prompt: str) -> str:
        self._output.say(prompt.rstrip())
        try:
            return sys.stdin.readline().strip()
        except (OSError, ValueError) as e:
            raise ConfigError(f"no answer: {e}", code="usage") from None

"""Makes the commands that errors and notes name for a pipeline, as they run from this folder and
with this home.

A command names the pipeline by its name where that is enough, else by its file. Not here: running
them. Neighbours: ``lease``, ``engine.plan.place`` and ``engine.run`` put them into hints.
"""

import os
import re
import shlex

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.sections import StateSettings
from penstock.errors import ConfigError, PenstockError
from penstock.store.remembered import UsedFile

_PLAIN = re.compile(r"[\w.-]+")
_QUOTED = re.compile(r"`(penstock (?:state|run|runs|rejects|plan|check|doctor)(?: [^`]+)?)`")
_NAMED_WORDS = ("rejects", "plan", "check")
"""Verbs that messages write without the name of their pipeline."""

_WITHOUT_STATE = ("set", "import")  # of ``penstock state``: they need more than a pipeline
_OF_A_RUN = ("--recreate", "--full-refresh")  # run options in texts without a pipeline


def home_options(home: Home) -> tuple[str, ...]:
    """Returns ``--home DIR`` where a command would find another home without it."""
    return () if home.path == Home().path else ("--home", str(home.path))


def words_of(pipeline: Pipeline | str, home: Home, *, by_file: bool = False) -> list[str]:
    """Returns the words that name a pipeline to ``penstock state``: its file where that names
    another store than the home's, or where a command does not take the name; else its name.
    ``by_file``: its file, where it has one and the command line gave it no other name."""
    if isinstance(pipeline, str):
        return [pipeline, *home_options(home)]
    by_name = pipeline.state == StateSettings() and _PLAIN.fullmatch(pipeline.pipeline)
    wants_file = not by_name or (by_file and not pipeline.renamed)
    if wants_file and has_file(pipeline):
        return [*_file_words(pipeline), *home_options(home)]
    return [pipeline.pipeline, *home_options(home)]


def _file_words(pipeline: Pipeline) -> list[str]:
    """Returns the words that name the pipeline by its file, as this command read it."""
    name = ("--name", pipeline.pipeline) if pipeline.renamed else ()
    return [pipeline.origin, *name, *pipeline.read_with]


def used_file(pipeline: Pipeline) -> UsedFile:
    """Returns how the pipeline of a file is read, for the store."""
    path, *options = _file_words(pipeline)
    places = [os.path.abspath(o) if n and options[n - 1] == "--env-file" else o
              for n, o in enumerate(options)]  # fmt: skip
    return UsedFile(os.path.abspath(path), tuple(places))


def state_command(
    verb: str, pipeline: Pipeline | str, home: Home, *options: str, by_file: bool = False
) -> str:
    """Returns the command ``penstock state VERB`` for a pipeline."""
    first, *more = words_of(pipeline, home, by_file=by_file)
    return shlex.join(["penstock", "state", verb, first, *options, *more])


def sealed_command(pipeline: Pipeline | str, home: Home) -> str:
    """Returns the command that gives up what waits. It needs the pipeline's destination: of a
    pipeline without a file, its words, unless they may hold a password."""
    if isinstance(pipeline, str) or has_file(pipeline):
        return state_command("reset", pipeline, home, "--sealed", by_file=True)
    uses = [pipeline.source.use, pipeline.destination.use]
    hidden = any("@" in u and "://" in u for u in uses)
    hidden = hidden or any(secret in u for u in uses for secret in pipeline.secret_values)
    named = ["SOURCE", "DESTINATION"] if hidden else uses
    words = ["penstock", "state", "reset", *named, "--name", pipeline.pipeline, "--sealed"]
    return shlex.join([*words, *home_options(home)])


def run_command(pipeline: Pipeline, home: Home, *options: str) -> str | None:
    """Returns the command that runs the pipeline of a file. None: it has no file, and the command
    may hold a password."""
    if not has_file(pipeline):
        return None
    named = ("--name", pipeline.pipeline)
    name = named if pipeline.renamed and "--name" not in options else ()
    words = (pipeline.origin, *options, *name, *pipeline.read_with, *home_options(home))
    return shlex.join(["penstock", "run", *words])


def has_file(pipeline: Pipeline) -> bool:
    """Whether a command may name the pipeline by its file. Not by the file of a project."""
    in_project = pipeline.place is not None and pipeline.place.project
    return not in_project and os.path.isfile(pipeline.origin)


class CompleteCommands:
    """Completes the commands in a run's texts, with the pipeline and the home, so that each can be
    run as printed."""

    def __init__(self, pipeline: Pipeline | str, home: Home) -> None:
        self._pipeline, self._home = pipeline, home
        self._name = pipeline if isinstance(pipeline, str) else pipeline.pipeline
        self._options = shlex.join(home_options(home))

    def text(self, text: str) -> str:
        """Returns the text with its commands completed; those that name a home stay."""
        return _QUOTED.sub(lambda m: self._command(m[1]), text) if "`penstock " in text else text

    def error(self, error: PenstockError) -> None:
        """Completes the commands in an error's message, problems and hint."""
        error.message = self.text(error.message)
        error.args = (error.message,)
        error.hint = error.hint and self.text(error.hint)
        if isinstance(error, ConfigError):
            error.problems = [self.text(problem) for problem in error.problems]

    def _command(self, command: str) -> str:
        if "--home" in command:
            return f"`{command}`"
        words = command.split(" ")
        if words[1] == "run" and all(word in _OF_A_RUN for word in words[2:]):
            pipeline, options = self._pipeline, words[2:]
            run = None if isinstance(pipeline, str) else run_command(pipeline, self._home, *options)
            if run is None and options:
                return f"the same run with `{' '.join(options)}`"
            return f"`{run or command}`"
        if words[1] in _NAMED_WORDS and len(words) == 2:
            return f"`{self._named(words[1])}`"
        if command == "penstock state reset --sealed":
            return f"`{sealed_command(self._pipeline, self._home)}`"
        if words[1] == "state" and len(words) == 3 and words[2] not in _WITHOUT_STATE:
            return f"`{state_command(words[2], self._pipeline, self._home)}`"
        verb = words[1] if words[1] != "state" else f"state {words[2] if len(words) > 2 else ''}"
        for name in dict.fromkeys((self._name, shlex.quote(self._name))):
            head = f"penstock {verb} {name}"
            if command == head or command.startswith(f"{head} "):
                words = ["penstock", *verb.split(), *words_of(self._pipeline, self._home)]
                return f"`{shlex.join(words)}{command[len(head) :]}`"
        return f"`{command} {self._options}`" if self._options else f"`{command}`"

    def _named(self, verb: str) -> str:
        """Returns the command of a verb for this pipeline; ``plan`` and ``check`` read its file."""
        pipeline = self._pipeline
        if verb == "rejects":
            words = words_of(pipeline, self._home)
        elif isinstance(pipeline, Pipeline) and has_file(pipeline):
            words = [*_file_words(pipeline), *home_options(self._home)]
        else:
            words = []
        return shlex.join(["penstock", verb, *words])

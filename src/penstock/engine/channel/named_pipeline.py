"""Makes the commands that errors and notes name for a pipeline, as they run from this folder and
with this home.

A pipeline stands in them by its name where that is enough, else by its file. Not here: running
them. Neighbours: ``lease``, ``engine.plan.place`` and ``engine.run`` put them into hints.
"""

import os
import re
import shlex

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.sections import StateSettings

_PLAIN = re.compile(r"[\w.-]+")
_QUOTED = re.compile(r"`(penstock (?:state|run|runs|rejects|plan|check|doctor) [^`]+)`")


def home_options(home: Home) -> tuple[str, ...]:
    """Returns ``--home DIR`` where a command would find another home without it."""
    return () if home.path == Home().path else ("--home", str(home.path))


def words_of(pipeline: Pipeline | str, home: Home, *, by_file: bool = False) -> list[str]:
    """Returns the words that name a pipeline to ``penstock state``: its file where that names
    another store than the home's, or a command does not take the name, else its name.
    ``by_file``: its file, where it has one and the command line gave it no other name."""
    if isinstance(pipeline, str):
        return [pipeline, *home_options(home)]
    by_name = pipeline.state == StateSettings() and _PLAIN.fullmatch(pipeline.pipeline)
    wants_file = not by_name or (by_file and not pipeline.renamed)
    if wants_file and os.path.isfile(pipeline.origin):
        return [pipeline.origin, *pipeline.read_with, *home_options(home)]
    return [pipeline.pipeline, *home_options(home)]


def state_command(
    verb: str, pipeline: Pipeline | str, home: Home, *options: str, by_file: bool = False
) -> str:
    """Returns the command ``penstock state VERB`` for a pipeline."""
    first, *more = words_of(pipeline, home, by_file=by_file)
    return shlex.join(["penstock", "state", verb, first, *options, *more])


def run_command(pipeline: Pipeline, home: Home, *options: str) -> str | None:
    """Returns the command that runs the pipeline of a file. None: it has no file, and the command
    may hold a password."""
    if not os.path.isfile(pipeline.origin):
        return None
    named = ("--name", pipeline.pipeline)
    name = named if pipeline.renamed and "--name" not in options else ()
    words = (pipeline.origin, *options, *name, *pipeline.read_with, *home_options(home))
    return shlex.join(["penstock", "run", *words])


def with_home(text: str, home: Home) -> str:
    """Returns a text whose commands for a pipeline find ``home``, wherever they lack it."""
    options = shlex.join(home_options(home))
    if not options:
        return text
    return _QUOTED.sub(lambda m: m[0] if "--home" in m[1] else f"`{m[1]} {options}`", text)

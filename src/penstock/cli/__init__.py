"""Runs the command line: verbs, options, output (docs/cli.md is its contract).

:func:`command` is the script ``penstock``. :func:`main` imports only the verb's module, so that
``penstock --version`` costs a start of Python. Each verb module holds Typer apps made by
``cli.app``; all printing goes through ``terminal.output``. Not here: logic, which is in ``engine``
and ``connectors``.
"""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from penstock import bytecode, process_start
from penstock.unused_packages import OF_CONNECT, leave_out


class Verb(NamedTuple):
    """A verb's app: attribute ``app`` of ``penstock.cli.MODULE``."""

    module: str
    app: str
    summary: str


VERBS = {
    "run": Verb("run", "run", "One sync: from a source to a destination"),
    "plan": Verb("run", "plan", "What `run` would do; nothing is read or written"),
    "search": Verb("find", "search", "Find connectors, before anything is installed"),
    "info": Verb("find", "info", "A connector's settings and needs, before it is installed"),
    "new": Verb("new", "new", "Write a commented pipeline file, and check it"),
    "import": Verb("import_", "import_", "Pipeline files from meltano.yml or a PyAirbyte program"),
    "check": Verb("inspect_connector", "check", "Are the credentials good?"),
    "spec": Verb("inspect_connector", "spec", "A connector's configuration and abilities"),
    "discover": Verb("inspect_connector", "discover", "A source's streams"),
    "preview": Verb("inspect_connector", "preview", "Some rows; no state is saved"),
    "state": Verb(
        "state", "state", "show | set | rewind | reset | adopt | export | import | history"
    ),
    "runs": Verb("runs", "runs", "Past runs, or one run's report and log"),
    "rejects": Verb("runs", "rejects", "Rows that were rejected, and why; retry tries them again"),
    "serve": Verb("serve", "serve", "Be a Singer target or an Airbyte destination"),
    "add": Verb("environments", "add", "Build a connector's environment"),
    "remove": Verb("environments", "remove", "Drop a connector's environment"),
    "list": Verb("environments", "list_", "The connectors whose environments are built"),
    "spark": Verb("spark", "spark", "status | stop: the Sparks that stay for the next run"),
    "ui": Verb("ui", "ui", "Pages in a browser: set up, plan, run and watch pipelines"),
    "doctor": Verb("doctor", "doctor", "Check this machine; --fix repairs."),
    "completion": Verb("completion", "completion", "bash | zsh | fish: a script for your shell"),
    "schema": Verb("doctor", "schema", "JSON Schema of the pipeline file"),
}

_EXAMPLES = """\
examples:
  penstock run airbyte:source-faker parquet:./lake --config '{"count": 1000}'
  penstock run airbyte:source-faker singer:target-jsonl
  penstock run shop.yaml
  penstock discover airbyte:source-faker --config @faker.json --json
"""


def command() -> int:
    """Runs the command of this process and returns its exit code."""
    bytecode.keep()
    process_start.note()
    leave_out(*OF_CONNECT)
    gc.set_threshold(200_000, 20, 100)  # imports make many objects and next to no garbage
    ended: list[int] = []
    atexit.register(_end_now, ended)  # the exit function registered first runs last
    ended.append(main())
    return ended[0]


def _end_now(ended: Sequence[int]) -> None:
    """Ends this process without Python's teardown of all imported modules, which takes a sixth of a
    short command. Threads and other exit functions have ended by then."""
    if not ended:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the writer has reported it, or nobody reads
            stream.flush()
    os._exit(ended[0])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code (docs/cli.md). Never raises."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    first = arguments[0] if arguments else None
    if first in ("--version", "-V"):
        from penstock import __version__

        return _print(f"penstock {__version__}\n")
    if first in ("--help", "-h", "help"):
        return _print(_help())
    if first is None:
        with suppress(OSError):
            sys.stderr.write(_help())
        return 2
    from penstock.cli.app import dispatch

    return dispatch(first, arguments[1:])


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        return 0  # the reader of the output went away
    except OSError as failure:
        from penstock.terminal.output import Output, UnwrittenAnswer

        return Output().error(UnwrittenAnswer(failure))
    return 0


def _help() -> str:
    width = max(map(len, VERBS)) + 2
    verbs = "".join(f"  {name:<{width}}{verb.summary}\n" for name, verb in VERBS.items())
    return (
        "usage: penstock VERB [ARGUMENTS] [OPTIONS]\n\n"
        f"verbs:\n{verbs}\n"
        "every verb takes --json, --home DIR, -v, -q and --help; `penstock --version`\n\n"
        f"{_EXAMPLES}"
    )

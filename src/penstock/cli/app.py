"""Makes a verb from a function: adds the options of every verb, help with examples, and the
printing of errors.

:func:`verb` makes a Typer app from one function, whose first parameter is the :class:`Surface`;
:func:`dispatch` finds a verb's app and runs it. Any exception becomes one printed error and an exit
code here. Neighbours: ``usage_errors`` words usage errors, ``output`` prints.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from typer.exceptions import Abort, TyperException

from penstock.cli import VERBS
from penstock.cli.usage_errors import unknown_verb, usage_error
from penstock.config.home import Home
from penstock.config.user_folders import provide
from penstock.terminal.output import Output, UnwrittenAnswer

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
HomeDir = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Penstock's home. Default: PENSTOCK_HOME, else the user's data folder.",
        show_default=False,
    ),
]
Verbose = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, metavar="", help="More on stderr; -vv with traces.",
        show_default=False,
    )
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Errors only on stderr.")]

_COMMON = {"as_json": (Json, False), "home": (HomeDir, None), "verbose": (Verbose, 0),
           "quiet": (Quiet, False)}  # fmt: skip
_HELP = ("-h", "--help")
_SETTINGS = {"help_option_names": _HELP, "max_content_width": 100}


@dataclass(slots=True)
class Surface:
    """The inputs of a verb from the command line: its output, and Penstock's home."""

    output: Output
    home: Home

    @staticmethod
    def open(*, as_json: bool, home: str | None, verbose: int, quiet: bool) -> "Surface":
        place = Home(home)
        provide(place.lasting)
        output = Output(
            as_json=as_json,
            verbosity=-1 if quiet else verbose,
            errors_dir=place.path / "errors",
        )
        return Surface(output, place)


Body = Callable[Concatenate[Surface, P], int | None]


def verb(
    *examples: str, app: typer.Typer | None = None, name: str | None = None
) -> Callable[[Body[P]], typer.Typer]:
    """Returns a decorator that makes the app of a verb, or adds the verb to ``app`` (a group).
    ``examples``: command lines for the help."""

    def decorate(body: Body[P]) -> typer.Typer:
        target = app or group(None)
        target.command(name, epilog=_epilog(examples), context_settings=_SETTINGS)(_command(body))
        return target

    return decorate


def group(summary: str | None, *examples: str) -> typer.Typer:
    """Returns an app for several verbs."""
    return typer.Typer(
        help=summary,
        epilog=_epilog(examples) if examples else None,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_SETTINGS,
    )


def _epilog(examples: Sequence[str]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


def _command(body: Callable[..., int | None]) -> Callable[..., int]:
    """Returns ``body`` with the common options after its own, and its errors printed. A parameter
    whose type is a dataclass provides its fields as options."""
    own = _parameters(body)[1:]
    kinds: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    groups = {name: _parameters(kind) for name, kind in kinds.items()}

    def command(**given: Any) -> int:
        surface = Surface.open(**{name: given.pop(name) for name in _COMMON})
        for name, fields in groups.items():
            given[name] = kinds[name](**{each.name: given.pop(each.name) for each in fields})
        try:
            return body(surface, **given) or 0
        except (SystemExit, typer.Exit, TyperException):
            raise
        except BaseException as error:
            return surface.output.error(error)

    common = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for name, (annotation, default) in _COMMON.items()
    ]
    expanded = [each for p in own for each in groups.get(p.name, [p])]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in expanded] + common
    command.__name__ = body.__name__.rstrip("_")
    command.__doc__ = body.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameters(of: Callable[..., Any]) -> list[inspect.Parameter]:
    return [*inspect.signature(of).parameters.values()]


def dispatch(name: str, arguments: list[str]) -> int:
    """Runs a verb and returns its exit code. Prints an error that no verb caught."""
    as_json = "--json" in arguments
    try:
        found = VERBS.get(name)
        if found is None:
            raise unknown_verb(name, VERBS)
        app = getattr(import_module(f"penstock.cli.{found.module}"), found.app)
        code = app(args=arguments, prog_name=f"penstock {name}", standalone_mode=False)
        return int(code or 0)
    except TyperException as error:
        return Output(as_json=as_json).error(usage_error(error, name))
    except (Abort, typer.Exit) as error:
        stopped = KeyboardInterrupt() if isinstance(error, Abort) else None
        return Output(as_json=as_json).error(stopped) if stopped else int(error.exit_code)  # type: ignore[union-attr]
    except BaseException as error:
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            return 0  # the reader of Typer's help went away
        if isinstance(error, OSError) and any(name in arguments for name in _HELP):
            error = UnwrittenAnswer(error)  # from the help, which Typer prints
        return Output(as_json=as_json, verbosity=arguments.count("-vv") * 2).error(error)
    finally:
        _flush_quietly()


def _flush_quietly() -> None:
    """Flushes stdout and stderr. A stream that takes nothing any more was reported or has no
    reader; it raises no error, not even when Python flushes at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue

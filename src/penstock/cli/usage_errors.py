"""Words usage errors: an unknown verb or option, a missing argument, a bad value.

All are ``ConfigError`` (exit 2) with a did-you-mean. Typer detects them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from typer.exceptions import TyperException

from penstock.config.did_you_mean import closest
from penstock.errors import ConfigError


def unknown_verb(name: str, known: Mapping[str, Any]) -> ConfigError:
    """Returns the error for a first word that is not a verb."""
    if name.startswith("-"):
        return ConfigError(
            f"options come after the verb, and {name} comes before any",
            code="usage.no_verb",
            hint=f"penstock VERB {name}; `penstock --help` lists the verbs",
        )
    if ":" in name or name.endswith((".yaml", ".yml")):
        return ConfigError(
            f"{name!r} is not a verb",
            code="usage.unknown_verb",
            hint=f"did you mean: penstock run {name}",
        )
    return ConfigError(
        f"there is no verb {name!r}",
        code="usage.unknown_verb",
        hint=_meant(name, known, "penstock ") or f"verbs: {', '.join(known)}",
    )


def usage_error(error: TyperException, verb: str) -> ConfigError:
    """Returns the error for a fault that Typer found. No word that may hold a secret is repeated:
    Typer quotes only values of typed options, and a configuration is text."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else f"penstock {verb}"
    help_hint = f"`{path} --help` shows how it is used"
    option = getattr(error, "option_name", None)
    commands: Mapping[str, Any] | None = getattr(getattr(error, "cmd", None), "commands", None)
    if commands is not None:
        said = _plain(error.format_message().rstrip("."))
        if option is not None:
            said = f"missing command before {option}"
        return ConfigError(
            f"`{path}`: {said}",
            code="usage.unknown_verb",
            hint=f"use one of: {', '.join(commands)}",
        )
    if option is not None and type(error).__name__ == "NoSuchOption":
        near = _meant(option, _options(context), "")
        return ConfigError(
            f"`{path}` has no option {option}",
            code="usage.unknown_option",
            hint=f"{near} {help_hint}" if near else help_hint,
        )
    message = error.format_message().rstrip(".")
    if "unexpected extra argument" in message:
        # never quoted: the word may be a configuration whose --config was forgotten
        return ConfigError(
            f"`{path}` was given more arguments than it takes",
            code="usage",
            hint=f"perhaps --config or another option's name is missing; {help_hint}",
        )
    return ConfigError(f"`{path}`: {_plain(message)}", code="usage", hint=help_hint)


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:].replace("\n\t", " ")


def _options(context: Any) -> list[str]:
    parameters = context.command.params if context is not None else ()
    return [o for p in parameters for o in p.opts if o.startswith("--")]


def _meant(word: str, known: Iterable[str], before: str) -> str | None:
    near = closest(word, known)
    return f"did you mean {before}{near}?" if near else None

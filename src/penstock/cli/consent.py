"""Prompts the user for consent to the permissions that a component requests; ``--yes`` gives it
without a prompt.

Not here: where the consent is kept (``connectors.consent``).
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import Surface
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.connectors.consent import ConsentRequest

Yes = Annotated[
    bool,
    typer.Option("--yes", help="Grant a component what it requests; remembered for that file."),
]


def settle(surface: Surface, asked: "Sequence[ConsentRequest]", *, yes: bool) -> None:
    """Prompts for each consent and keeps it. Raises ``ConfigError`` (``connector.consent``) where
    the user refuses, or no terminal is there for the prompt."""
    for want in asked:
        if yes or _agrees(surface, want):
            want.agree()
            agreed = f"{want.connector}: agreed to {', '.join(want.asks)}"
            surface.output.say(surface.output.safe(agreed))
        else:
            raise want.refusal()


def _agrees(surface: Surface, want: "ConsentRequest") -> bool:
    output = surface.output
    if output.as_json or not output.interactive or not sys.stdin.isatty():
        return False
    output.say(f"{want.connector} requests:")
    for ask in want.asks:
        output.say(f"  - {output.safe(ask)}")
    output.say("Grant it? The answer is remembered for this exact file. [y/N]")
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except (OSError, ValueError) as e:
        raise ConfigError(f"no answer: {e}", code="connector.consent") from None

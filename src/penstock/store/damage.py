"""Makes the errors for stored values whose checksum does not match: what is damaged, and the ways
out.

Not here: checksums (``checksums``), where values are read (``ledger``, ``names_and_schemas``,
``keys_ledger``, ``sql``)."""

import shlex

from penstock.errors import StateError
from penstock.model.state import StateScope
from penstock.store.checksums import Mismatch, opened


def open_value(pipeline: str, value: str, about: str) -> str:
    """Returns the JSON text of a stored value other than a state. ``about``: the identity with
    which it was sealed. Raises ``StateError``."""
    try:
        return opened(value, about)
    except Mismatch:
        raise value_damaged(pipeline, about) from None


def state_damaged(pipeline: str, scope: StateScope) -> StateError:
    """Makes the error for a saved state."""
    name = shlex.quote(pipeline)
    of = "all streams" if scope.stream is None else f"stream {scope.stream}"
    one = "" if scope.stream is None else f" --stream {shlex.quote(str(scope.stream))}"
    return StateError(
        f"the saved state of {of} of pipeline {pipeline!r} is damaged: it is not what was saved"
        " (its checksum differs)",
        code="state.damaged",
        stream=None if scope.stream is None else str(scope.stream),
        hint=f"`penstock state history {name}` shows what was saved; `penstock state set {name}"
        f" @FILE{one}` puts a state in its place, and `penstock state reset {name}{one}` lets the"
        " next run read from the start. Nothing was read or sent",
    )


def value_damaged(pipeline: str, about: str) -> StateError:
    """Makes the error for any other value that decides what is read and loaded. ``about``: its
    identity."""
    name = shlex.quote(pipeline)
    return StateError(
        f"what the state store holds of pipeline {pipeline!r} is damaged: {about} is not what was"
        " written (its checksum differs)",
        code="state.damaged",
        hint="restore the store from a copy that was made before, then `penstock state adopt"
        f" {name}`. Without a copy: `penstock state history {name}` shows the states that were"
        " saved, a pipeline of another name goes on from one (`penstock state set NAME @FILE`), and"
        f" `penstock state reset {name}` discards loads that wait. Nothing was read or sent",
    )

"""Runs a connector's command that answers once (spec, check, discover), and waits for its end.

Every wait is bounded (L11). Not here: the form of an answer, which the caller's ``listen`` reads
(``protocols/*/probe``); commands that stream (``read``, ``write``).
"""

from collections.abc import Callable

import msgspec

from penstock.errors import Role
from penstock.protocols.stdio.read import TimedOut, Watch, exit_code
from penstock.runtimes.contract import ByteChannel, RunTimeouts


class CommandAnswer(msgspec.Struct):
    """How the command ended; protocols add the fields of their answers. ``code`` None: it was
    stopped. ``timed_out``: the exceeded timeout."""

    code: int | None = None
    stderr_tail: str = ""
    timed_out: TimedOut | None = None


def ask(
    channel: ByteChannel,
    timeouts: RunTimeouts,
    listen: Callable[[Watch], bool],
    answer: CommandAnswer,
    role: Role,
) -> None:
    """Fills ``answer`` and stops the connector. ``listen`` reads its output and returns True where
    the output ended or the answer is complete: the connector then has ``RunTimeouts.stop`` seconds
    to end by itself."""
    try:
        if listen(Watch(timeouts, role)):
            for code in exit_code(channel, timeouts.stop, timeouts.stop, role):
                answer.code = code
    except TimedOut as e:
        answer.timed_out = e
    channel.stop()
    answer.stderr_tail = channel.stderr_tail()

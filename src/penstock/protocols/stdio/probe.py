"""Asks a connector that prints lines one question, and sees it to its end: spec, check, discover.

Knows no protocol: who asks says how it listens. Every wait is bounded (L11). Not here: what an
answer looks like (``protocols/*/probe``), conversations (``read``, ``write``).
"""

from collections.abc import Callable

import msgspec

from penstock.errors import Role
from penstock.protocols.stdio.read import TimedOut, Watch, exit_code
from penstock.runtimes.contract import ByteChannel, Timeouts


class Answer(msgspec.Struct):
    """``code`` None: we stopped it. ``timed_out``: the limit that it passed."""

    code: int | None = None
    stderr_tail: str = ""
    timed_out: TimedOut | None = None


def ask(
    channel: ByteChannel,
    timeouts: Timeouts,
    listen: Callable[[Watch], bool],
    answer: Answer,
    role: Role,
) -> None:
    """Fill ``answer`` and stop the connector. ``listen`` reads what it prints; True: its output
    ended, or it has said enough, and it is given ``Timeouts.stop`` seconds to end by itself."""
    try:
        if listen(Watch(timeouts, role)):
            for code in exit_code(channel, timeouts.stop, timeouts.stop, role):
                answer.code = code
    except TimedOut as e:
        answer.timed_out = e
    channel.stop()
    answer.stderr_tail = channel.stderr_tail()

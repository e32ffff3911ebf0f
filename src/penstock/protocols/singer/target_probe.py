"""Asking a Singer target something that it answers by itself: ``--about``, a run without input.

Not here: a write (``destination``, ``protocols.stdio.write``), a tap's questions. Every wait is
bounded (L11). Source: reference §1.1; ``--about`` is the Singer SDK's, older programs refuse it.
"""

import time
from collections.abc import Sequence

import msgspec

from penstock.protocols.singer import command_line
from penstock.protocols.singer.messages import About
from penstock.runtimes.contract import Argument, Runtime, Timeouts

ANSWER_SECONDS = 120.0  # a program that imports half the world before it says its version
_ANSWER_BYTES = 16 << 20
_LAST_LINES = 3
_SHOWN = 2000  # characters
_STEP = 1.0


class Said(msgspec.Struct, frozen=True):
    """``code`` None: it did not end in time."""

    code: int | None
    stdout: bytes
    stderr_tail: str


def ask(runtime: Runtime, arguments: Sequence[Argument], timeouts: Timeouts) -> Said:
    """Run it with an input that is at its end, at most ``Timeouts.start`` seconds and no longer
    than :data:`ANSWER_SECONDS`. Raises ``DestinationError`` where it cannot be started."""
    bound = min(timeouts.start, ANSWER_SECONDS)
    left = time.monotonic() + bound
    found = bytearray()
    with runtime.open(arguments, timeouts) as channel:
        waited = 0.0  # as asked for: a runtime in virtual time returns early
        block = None
        while block != b"" and waited < bound and time.monotonic() < left:
            block = channel.read(_STEP)
            waited += _STEP if block is None else 0.0
            found += (block or b"")[: _ANSWER_BYTES - len(found)]
        code = channel.wait(max(_STEP, left - time.monotonic())) if block == b"" else None
        channel.stop()
        return Said(code, bytes(found), channel.stderr_tail())


def about(runtime: Runtime, timeouts: Timeouts) -> About | None:
    """None: it does not say."""
    said = ask(runtime, ["--about", "--format=json"], timeouts)
    return command_line.about_of(said.stdout) if said.code == 0 else None


def last_words(stderr_tail: str) -> str:
    """What a program said of its end: the line it marked so, else its last ones."""
    told = command_line.last_words(stderr_tail)
    lines = [line for line in stderr_tail.splitlines() if line.strip()]
    return (told or "\n".join(lines[-_LAST_LINES:]))[-_SHOWN:]

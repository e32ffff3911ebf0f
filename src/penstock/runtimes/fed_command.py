"""Runs a user's program that is not a connector to its end, with a document on its stdin.

It has this process's whole environment. It is ended with everything that it started when its time
is up or this process dies. Neighbours: ``process`` runs it, ``engine.reporting.hooks`` requests it.
"""

import os
import time
from collections.abc import Callable, Sequence

from penstock.errors import PenstockError
from penstock.runtimes.contract import RunTimeouts
from penstock.runtimes.masking import Masker
from penstock.runtimes.process import ProcessRuntime

_STOP_SECONDS = 2.0
_STEP = 0.1
_SHOWN = 300  # characters of its last output


def run_fed(
    command: Sequence[str],
    document: bytes,
    seconds: float,
    masker: Masker,
    log: Callable[[str], None],
) -> str | None:
    """Returns None if it ended well within ``seconds``, else a sentence on how it ended. ``log``:
    receives each line of its stderr, masked; its stdout is dropped."""
    deadline = time.monotonic() + seconds
    runtime = ProcessRuntime(command, env=dict(os.environ), masker=masker, log_stderr=log)
    try:
        with runtime.open((), RunTimeouts(stop=_STOP_SECONDS), feed=True) as channel:
            left = memoryview(document)
            while (remains := deadline - time.monotonic()) > 0:
                try:
                    left = left[channel.write(left, min(remains, _STEP)) :] if left else left
                except BrokenPipeError:  # it does not read the rest
                    left = left[:0]
                if not left:
                    channel.end_input()
                if channel.read(min(remains, _STEP)) == b"":
                    break
            code = channel.wait(max(deadline - time.monotonic(), 0.0))
            if code is None:
                return f"{command[0]} was still running after {seconds:g} s"
            if code:
                words = channel.stderr_tail().strip()[-_SHOWN:]
                return f"{command[0]} ended with {code}{f': {words}' if words else ''}"
    except (PenstockError, OSError) as e:
        return str(e)
    return None

"""Runs a command of a tap or target that answers once, and reads the answer from its stdout:
``--about``, ``--help``, discovery, a start without input.

Every wait is bounded (L11). Not here: timeouts and the exit (``protocols.stdio.probe``), the choice
of commands (``source``, ``destination``). Source: reference §1.1; ``--about`` is the Singer SDK's,
older programs refuse it.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import Role
from penstock.model.events import Control, Event, LogEvent
from penstock.protocols.singer.command_line import last_words
from penstock.protocols.singer.config_writeback import WriteBack
from penstock.protocols.singer.messages import Line, MessageType, word
from penstock.protocols.stdio import probe
from penstock.protocols.stdio.read import ANSWER_BYTES, TimedOut, Watch
from penstock.runtimes.contract import Argument, Runtime, RunTimeouts

_LINE = msgspec.json.Decoder(Line)
_TYPES = frozenset(MessageType)
_SHOWN = 5  # lines of stderr
_FIRST = 64 * 1024  # bytes searched for a message
_TARGET_SECONDS = 120.0  # the program may have slow imports before it answers
_LACKS = re.compile(r"^(?:ImportError|ModuleNotFoundError)\b", re.MULTILINE)
_DEFAULT = RunTimeouts().start


class Answer(probe.CommandAnswer):
    """The answer of a command. ``text``: its stdout. ``speaks``: it began to send messages and was
    stopped."""

    text: bytes = b""
    speaks: bool = False

    @property
    def words(self) -> str:
        """Returns why it failed, from its stderr where that has a reason."""
        if self.timed_out is not None:
            return str(self.timed_out)
        said = self._reason
        how = f"the tap ended with exit code {self.code}"
        if self.code is None:
            began = "began to send messages" if self.speaks else "did not end"
            how = f"the tap {began}, and was stopped"
        elif self.code < 0:
            how = f"the tap was killed by signal {-self.code}"
        return f"{said} ({how})" if said else f"{how}; it wrote nothing to stderr"

    @property
    def hint(self) -> str:
        """Returns what a person can do about its failure."""
        if self.timed_out is not None:
            return "raise `timeouts` in the pipeline file, or see why the tap hangs"
        if self._reason:
            return "correct what it names, then try again"
        return "start the tap by itself with this configuration, to see why it ends"

    @property
    def _reason(self) -> str:
        return last_words(self.stderr_tail) or "\n".join(
            self.stderr_tail.strip().splitlines()[-_SHOWN:]
        )

    @property
    def lacks_a_module(self) -> bool:
        """Returns whether it failed because Python did not find an import: it cannot run at all."""
        return bool(self.code) and _LACKS.search(self.stderr_tail) is not None


def _unheard(event: Event) -> None:
    """Drops an event."""


def ask(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: RunTimeouts,
    log: Callable[[Event], None] = _unheard,
    config: WriteBack | None = None,
    role: Role = "source",
) -> Answer:
    """Runs a tap to its end, or until it sends messages; a target with empty input, for at most
    :data:`_TARGET_SECONDS`, or the user's ``RunTimeouts.start``. ``config``: its changes go to
    ``log`` as a ``Control`` event. Raises the role's error where it cannot be started."""
    answer, limits = Answer(), timeouts
    if role == "destination":
        bound = start_bound(timeouts, _TARGET_SECONDS)
        limits = RunTimeouts(start=bound, heartbeat=bound, total=bound, stop=bound)
    said = bytearray()
    changed = None
    with runtime.open(arguments, timeouts) as channel:

        def listen(watch: Watch) -> bool:
            while (block := watch.read(channel, limits.stop)) != b"":
                said.extend(block or b"")
                if len(said) > ANSWER_BYTES:
                    raise TimedOut(f"{role}.bad_answer", f"its answer is over {ANSWER_BYTES} bytes")
                early = block and role == "source" and len(said) - len(block) < _FIRST
                if early and _speaks(bytes(said[:_FIRST])):
                    answer.speaks = True
                    return False
            return True

        probe.ask(channel, limits, listen, answer, role)
        if config is not None:
            changed = config.changed(channel)
    answer.text = bytes(said)
    if changed is not None:
        log(Control(changed))
    return answer


def start_bound(timeouts: RunTimeouts, usual: float) -> float:
    """Returns the timeout in seconds for an answer that should come at once: the user's
    ``RunTimeouts.start``; ``usual`` where that is the default."""
    return usual if timeouts.start == _DEFAULT else timeouts.start


def document(answer: Answer, log: Callable[[Event], None]) -> dict[str, object] | None:
    """Decodes the JSON object of an answer; None: there is none. Text before it is logged."""
    text = answer.text
    start = 0
    while start >= 0:
        try:
            found = msgspec.json.decode(text[start:])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = None
        if isinstance(found, dict):
            if start:
                log(
                    LogEvent(
                        "INFO", f"before its answer: {text[:start][:1000].decode(errors='replace')}"
                    )
                )
            return found
        place = text.find(b"\n{", start)
        start = place + 1 if place >= 0 else -1
    return None


def _speaks(text: bytes) -> bool:
    """Returns whether one of the first lines is a message."""
    for line in text.split(b"\n")[:-1][:50]:
        try:
            if word(_LINE.decode(line).type) in _TYPES:
                return True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return False

"""One question to a tap that answers once, with all of its stdout: about, help, discovery, a start.

Not here: reading (``protocols.stdio.read``), which questions there are (``source``). Every wait
is bounded (L11).
"""

from collections.abc import Callable, Sequence

import msgspec

from penstock.model.events import Control, Event, Log
from penstock.protocols.singer.command_line import last_words
from penstock.protocols.singer.config_writeback import WriteBack
from penstock.protocols.singer.messages import Line, MessageType, word
from penstock.protocols.stdio.read import ANSWER_BYTES, TimedOut, Watch, exit_code
from penstock.runtimes.contract import Argument, Runtime, Timeouts

_LINE = msgspec.json.Decoder(Line)
_TYPES = frozenset(MessageType)
_SHOWN = 5  # lines of stderr
_FIRST = 64 * 1024  # bytes in which a message is looked for


class Answer(msgspec.Struct):
    """``text``: its stdout. ``speaks``: it began to send messages, and was stopped. ``code`` None:
    we stopped it."""

    text: bytes = b""
    code: int | None = None
    stderr_tail: str = ""
    speaks: bool = False
    timed_out: TimedOut | None = None

    @property
    def words(self) -> str:
        """Why it failed, in its own words where it has any."""
        if self.timed_out is not None:
            return str(self.timed_out)
        said = last_words(self.stderr_tail)
        if said is None:
            said = "\n".join(self.stderr_tail.strip().splitlines()[-_SHOWN:])
        how = f"the tap ended with exit code {self.code}"
        return f"{said} ({how})" if said else f"{how} and said nothing on stderr"


def ask(
    runtime: Runtime,
    arguments: Sequence[Argument],
    timeouts: Timeouts,
    log: Callable[[Event], None],
    config: WriteBack | None = None,
) -> Answer:
    """Run a tap to its end, or until it sends messages. ``config``: hears of what it changed in
    it. Raises ``SourceError`` where it cannot be started."""
    answer = Answer()
    said = bytearray()
    watch = Watch(timeouts)
    with runtime.open(arguments, timeouts) as channel:
        try:
            while (block := watch.read(channel, timeouts.stop)) != b"":
                said += block or b""
                if len(said) > ANSWER_BYTES:
                    raise TimedOut("source.bad_answer", f"its answer is over {ANSWER_BYTES} bytes")
                if block and len(said) - len(block) < _FIRST and _speaks(bytes(said[:_FIRST])):
                    answer.speaks = True
                    break
            if not answer.speaks:
                for code in exit_code(channel, timeouts.stop, timeouts.stop):
                    answer.code = code
        except TimedOut as e:
            answer.timed_out = e
        channel.stop()
        answer.stderr_tail = channel.stderr_tail()
        changed = None if config is None else config.changed(channel)
    answer.text = bytes(said)
    if changed is not None:
        log(Control(changed))
    return answer


def document(answer: Answer, log: Callable[[Event], None]) -> dict[str, object] | None:
    """The JSON object that the answer is; what stands before it is noise."""
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
                    Log(
                        "INFO", f"before its answer: {text[:start][:1000].decode(errors='replace')}"
                    )
                )
            return found
        place = text.find(b"\n{", start)
        start = place + 1 if place >= 0 else -1
    return None


def _speaks(text: bytes) -> bool:
    """Is one of its first lines a message?"""
    for line in text.split(b"\n")[:-1][:50]:
        try:
            if word(_LINE.decode(line).type) in _TYPES:
                return True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return False

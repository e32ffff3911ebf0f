"""Prints everything that a verb prints, as text or as one JSON document.

Only the answer goes to stdout; progress, log lines, notes and errors go to stderr (with ``--json``
an error is the document on stdout). Colours only on a terminal and without ``NO_COLOR``. A text
part is one line: line breaks, control and direction characters in a connector's text are escaped,
so that it cannot forge a line of ours; JSON uses its own escapes. Known secrets are masked in every
line (L10). Neighbours: ``format`` formats, ``error_view`` describes errors, ``progress`` shows a
run.
"""

import os
import re
import select
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from unicodedata import category

from penstock.config.secret_texts import is_plain
from penstock.errors import Cancelled, ConfigError, SourceError
from penstock.runtimes.masking import Masker

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

READER_SECONDS = 600.0
_LOOK_SECONDS = 0.5
_WIDTH_WHERE_NOBODY_LOOKS = 10_000  # a file or a pipe: nothing is folded or cut


class UnwrittenAnswer(ConfigError):
    """Raised where stdout takes no answer, as on a full disk. A reader that went away is not an
    error."""

    def __init__(self, failure: OSError) -> None:
        super().__init__(
            f"the answer could not be written to stdout: {failure.strerror or failure}",
            code="usage.stdout",
            hint="what the command did stays done: `penstock runs` has the report of a run",
        )


class Output:
    """The output of one command. ``verbosity``: -1 quiet, 0, 1 (``-v``), 2 (``-vv``).
    ``errors_dir``: the folder of traces."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        verbosity: int = 0,
        errors_dir: Path | None = None,
        out: IO[str] | None = None,
        err: IO[str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.as_json = as_json
        self.verbosity = verbosity
        self.errors_dir = errors_dir
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        self._plain = bool(environ.get("NO_COLOR"))
        self._consoles: dict[int, Console] = {}
        self._secrets: set[str] = set()
        self._masker = Masker()
        self._unread = False  # the reader of stdout read nothing, so a line was abandoned
        self._unwritten = False  # stdout took no answer: messages go to stderr

    # -- secrets

    def hide(self, secrets: Iterable[str]) -> None:
        """Masks these values in everything printed from now on, except in the answer's data. Skips
        numbers and truth values: they occur in counts and cursors."""
        self._secrets |= {s for s in secrets if not is_plain(s)}
        self._masker = Masker(self._secrets)

    def safe(self, text: str) -> str:
        """Returns ``text`` with secrets masked and control characters escaped; it may have several
        lines."""
        return strip_controls(self._masker.mask(text))

    def safe_line(self, text: str) -> str:
        """Returns ``text`` as :meth:`safe` does, as one line."""
        return one_line(self._masker.mask(text))

    # -- the answer

    def answer(self, value: Any, text: "Callable[[], Iterable[RenderableType]]") -> None:
        """Prints ``value`` as JSON, or the parts that ``text`` returns, a line each, to stdout.
        Called once by each verb. Raises :class:`UnwrittenAnswer`."""
        if self.as_json:
            self.document(value)
            return
        for part in text():
            self._write(self._out, part)
        self._flush(self._out)

    def document(self, value: Any) -> None:
        """Prints one JSON document to stdout, in UTF-8 in every locale."""
        self._bytes(encode_json(value))

    def line(self, text: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Prints a message of the protocol on stdout (``serve``), unchanged and at once. Raises
        like :func:`write_bounded` where nobody reads; nothing more is printed after that."""
        body = text.encode() + b"\n"
        raw = getattr(self._out, "buffer", None)
        if raw is None:
            self._bytes(body)
        elif not self._unread:
            self._unread = True
            with self._writing(self._out):
                self._out.flush()
                write_bounded(raw.fileno(), body, stopped)
            self._unread = False

    def _bytes(self, body: bytes) -> None:
        with self._writing(self._out):
            self._out.flush()
            raw = getattr(self._out, "buffer", None)
            if raw is None:
                self._out.write(body.decode())
                self._out.flush()
            else:
                raw.write(body)
                raw.flush()

    # -- besides the answer

    def say(self, line: "RenderableType", *, level: int = 0) -> None:
        """Prints a line to stderr, if the user's verbosity is at least ``level``."""
        if self.verbosity >= level:
            self._write(self._err, line)
            self._flush(self._err)

    @property
    def interactive(self) -> bool:
        """Returns whether stderr is a terminal."""
        return self._err.isatty() and os.environ.get("TERM") != "dumb"

    def watching(self) -> "Console":
        """Returns the console of stderr, for progress bars."""
        return self._console(self._err)

    def error(self, error: BaseException, *, log: str | None = None) -> int:
        """Prints an error and returns its exit code."""
        from penstock.terminal.error_view import DescribedError

        fault = DescribedError.of(error, self)
        return self.fault(fault, log=log)

    def fault(self, fault: Any, *, log: str | None = None) -> int:
        """Prints a described error (``error_view.DescribedError``), to stderr or as JSON, and
        returns its exit code. Where stdout takes no document, it goes to stderr as text."""
        if self.as_json and not self._unwritten:
            try:
                self.document({"error": self._masker.mask_data(fault.as_dict(log))})
            except UnwrittenAnswer:
                return self.fault(fault, log=log)
            return fault.exit_code
        for line in fault.lines(self.verbosity, log, self.safe):
            self._write(self._err, line)
        self._flush(self._err)
        return fault.exit_code

    # -- streams

    def _rendered(self, file: IO[str], part: "RenderableType") -> str:
        """Returns any text as one line; draws other renderables, without blanks at line ends."""
        if isinstance(part, str):
            return self.safe_line(part) + "\n"
        from rich.text import Text

        console = self._console(file)
        with console.capture() as captured:  # a folded text would have lines that look like ours
            console.print(part, soft_wrap=isinstance(part, Text))
        drawn = captured.get()
        return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines())

    def _console(self, file: IO[str]) -> "Console":
        from rich.console import Console

        found = self._consoles.get(id(file))
        if found is None:
            found = Console(
                file=file,
                highlight=False,
                markup=False,
                emoji=False,
                color_system=None if self._plain else "auto",
                width=None if file.isatty() else _WIDTH_WHERE_NOBODY_LOOKS,
            )
            self._consoles[id(file)] = found
        return found

    def _write(self, file: IO[str], part: "RenderableType") -> None:
        with self._writing(file):  # drawn renderables touch the file too
            text = self._rendered(file, part)
            try:
                file.write(text)
            except UnicodeEncodeError:
                file.write(text.encode("ascii", "backslashreplace").decode())

    def _flush(self, file: IO[str]) -> None:
        with self._writing(file):
            file.flush()

    @contextmanager
    def _writing(self, file: IO[str]) -> Generator[None]:
        """Raises :class:`UnwrittenAnswer` where stdout takes nothing. A reader that went away and a
        stderr that takes nothing are not errors, as nobody would see them."""
        try:
            yield
        except OSError as failure:
            _silence(file)
            if file is self._err or isinstance(failure, BrokenPipeError):
                return
            self._unwritten = True
            raise UnwrittenAnswer(failure) from None


def encode_json(value: Any) -> bytes:
    """Encodes a value as indented JSON with a line end. Structs are objects; NaN is null; a value
    without a JSON form is its text."""
    import msgspec

    encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="number")
    try:
        body = encoder.encode(value)
    except UnicodeEncodeError:  # lone surrogates, as names of files may hold
        plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=str, str_keys=True)
        body = encoder.encode(_without_surrogates(plain))
    return _escaped_json(msgspec.json.format(body, indent=2)) + b"\n"


def _escaped_json(body: bytes) -> bytes:
    r"""Writes control and invisible characters as JSON's ``\uXXXX``: the data stay the same."""
    if body.isascii() and b"\x7f" not in body:
        return body

    def escape(found: re.Match[str]) -> str:
        character = found[0]
        if not _unprintable(character):
            return character
        pair = character.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{pair[i : i + 4]}" for i in range(0, len(pair), 4))

    lines = body.decode().split("\n")
    return "\n".join(x if x.isprintable() else _NOT_ASCII.sub(escape, x) for x in lines).encode()


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value).items()
        return {_without_surrogates(k): _without_surrogates(v) for k, v in pairs}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in cast(list[Any], value)]
    return value


def _unprintable(character: str) -> bool:
    """Returns whether a character moves the cursor, ends the line, changes the direction or order
    of the text, or has no width: controls, line and paragraph separators, format characters, lone
    surrogates. Blanks of other widths stay."""
    return not character.isprintable() and category(character) in _UNPRINTABLE


_NOT_ASCII = re.compile(r"[^ -~]")
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def strip_controls(text: str) -> str:
    r"""Escapes characters that a terminal would obey or that show nothing, as ``\x1b`` and
    ``\u202e``; line breaks and tabs stay."""
    if text.isprintable():
        return text
    kept = text.replace("\r\n", "\n")
    return "".join(_escape(c) if c not in "\n\t" and _unprintable(c) else c for c in kept)


def one_line(text: str) -> str:
    r"""Returns a text as one line, with its line breaks as ``\n``, so that it cannot forge another
    line of ours."""
    return text if text.isprintable() else strip_controls(text.rstrip("\r\n")).replace("\n", "\\n")


def _silence(file: IO[str]) -> None:
    """Redirects a stream that takes nothing any more to the null device, so that later writes do
    not raise."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, file.fileno())
    except OSError:
        return
    finally:
        os.close(devnull)


def write_bounded(fd: int, body: bytes, stopped: Callable[[], bool]) -> None:
    """Writes a message to the program that started this one, in pieces that never block (L11): a
    reader that does not read would block the process, whose first signal only requests a stop.
    Raises ``Cancelled`` once ``stopped`` is set while it waits, ``SourceError`` where nothing was
    read for :data:`READER_SECONDS`, and ``OSError``. After the first two a part of the message may
    have been written."""
    left, poll = memoryview(body), select.poll()
    poll.register(fd, select.POLLOUT)
    taken = time.monotonic()
    while left:
        if poll.poll(_LOOK_SECONDS * 1000):
            left = left[os.write(fd, left[: select.PIPE_BUF]) :]
            taken = time.monotonic()
        elif stopped():
            raise Cancelled(
                "the run was stopped while the program that started it read nothing from stdout",
                hint="run again: that program sends again rows without a state",
            )
        elif time.monotonic() - taken > READER_SECONDS:
            raise SourceError(
                "the program that started this one has read nothing from its stdout for "
                f"{READER_SECONDS:.0f} s",
                code="source.host_reads_nothing",
                hint="see why it does not read, then run it again: what was committed is kept, "
                "and it sends again rows without a state",
            )

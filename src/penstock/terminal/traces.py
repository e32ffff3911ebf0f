"""Removes tracebacks, Python's or Java's, from a connector's text; they are shown only from ``-vv``
on.

Pure functions over text; the run's log keeps everything. Neighbours: ``error_view`` and
``progress``.
"""

import re

_PYTHON = "Traceback (most recent call last):"
_CHAINED = re.compile(r"\s*(?:During handling of the above exception|The above exception was the)")
_FRAME = re.compile(
    r"\s+at [\w$.<>/@]+\(.*\)|\s*\.\.\. \d+ more|\s*\.\.\. \d+ common frames omitted"
    r'|\s*File ".*", line \d+'
)


def without_trace(text: str) -> str:
    """Returns the text without tracebacks; the exception at the end of each stays."""
    if "\n" not in text and not _FRAME.match(text):
        return text
    trace, kept, led = Trace(), list[str](), False
    for line in text.split("\n"):
        before, found, _ = line.partition(_PYTHON)
        if trace.holds(found or line):
            if before.strip() and found:
                kept.append(before.rstrip())
                led = True
        elif led:
            kept[-1] += f" {line.strip()}"
            led = False
        elif line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept).strip("\n")


class Trace:
    """Recognises the lines of a traceback among the lines of one origin, given in order."""

    def __init__(self) -> None:
        self._inside = False

    def holds(self, line: str) -> bool:
        """Returns whether the line belongs to a traceback. The exception at its end does not."""
        if line.lstrip().startswith(_PYTHON) or _FRAME.match(line):
            self._inside = True
            return True
        indented = not line.strip() or line[:1] in " \t"
        if _CHAINED.match(line) or (self._inside and indented):
            return True
        self._inside = False
        return False

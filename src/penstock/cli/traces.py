"""A connector's traceback, Python's or Java's, in what is shown of its words: only from ``-vv`` on.

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
    """The text with what a traceback leads to in place of the traceback."""
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
    """Lines of one origin, one after the other: is this one of a traceback's?"""

    def __init__(self) -> None:
        self._inside = False

    def holds(self, line: str) -> bool:
        """Not the exception itself, which is what a traceback ends with."""
        if line.lstrip().startswith(_PYTHON) or _FRAME.match(line):
            self._inside = True
            return True
        indented = not line.strip() or line[:1] in " \t"
        if _CHAINED.match(line) or (self._inside and indented):
            return True
        self._inside = False
        return False

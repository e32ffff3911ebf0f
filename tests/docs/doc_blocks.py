"""Finds the code blocks of the README and of ``docs/*.md``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What a reader would type, run or write into a file; the rest is shown: answers, trees, pictures
RUNNABLE = {"sh", "console", "yaml", "python", "dockerfile", "ini", "cron"}
LANGUAGES = {*RUNNABLE, "json", "text"}


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str, page: str | None = None) -> Iterator[Block]:
    """Those of the languages (none: of all), of one page or of all, in their order."""
    for path in PAGES:
        if page not in (None, path.name):
            continue
        text = path.read_text()
        for found in re.finditer(r"^```([a-z]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if not languages or found[1] in languages:
                line = text.count("\n", 0, found.start()) + 2
                yield Block(path.name, line, found[1], found[2])

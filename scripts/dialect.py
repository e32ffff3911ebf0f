"""Counts turns of phrase that a reader must read twice, in the source's texts and in the documents.

    python scripts/dialect.py            # counts per 10,000 words, and the files with most
    python scripts/dialect.py FILE ...   # each line of these files that has one

A turn is a program that says, hears, tells or asks; "anew", "beside", "such a one", "as it stands";
"of it" at the end of a clause; "that is no ...". Read by tokens: strings, docstrings and comments
of a module, all of a page.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURNS = re.compile(
    r"\b(?:says?|said|asks?|asked|tells?|told|hears?|heard|anew|beside|such an? one)\b"
    r"|\bas (?:it stands|they stand)\b|\bof it\b(?=[.,;:)])|\bspeaks? for\b|\bspoke for\b"
    r"|\b(?:that|which) (?:is|are) (?:no|none)\b|\bnone came\b|\b(?:is|are) had\b"
)


def main() -> int:
    if files := sys.argv[1:]:
        for path in map(Path, files):
            for line, text in _texts(path):
                for number, one in enumerate(text.split("\n"), line):
                    if TURNS.search(one):
                        _print(f"{path}:{number}: {one.strip()}")
        return 0
    for name, pages in (("src", "src/**/*.py"), ("docs and README", "docs/*.md")):
        paths = sorted(ROOT.glob(pages)) + ([ROOT / "README.md"] if name != "src" else [])
        counts = [(*_count(path), path) for path in paths]
        turns, words = sum(c[0] for c in counts), sum(c[1] for c in counts)
        _print(f"{name}: {turns} turns in {words} words, {1e4 * turns / words:.1f} per 10,000")
        for found, _, path in sorted(counts, reverse=True)[:15]:
            _print(f"  {found:4} {path.relative_to(ROOT)}")
    return 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _count(path: Path) -> tuple[int, int]:
    texts = [text for _, text in _texts(path)]
    return sum(len(TURNS.findall(t)) for t in texts), sum(len(t.split()) for t in texts)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text()
    if path.suffix != ".py":
        yield 1, text
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


if __name__ == "__main__":
    sys.exit(main())

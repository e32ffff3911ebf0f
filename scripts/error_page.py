"""Writes the pages of error codes, `docs/errors*.md`, from the code.

    python scripts/error_page.py            # writes the pages
    python scripts/error_page.py --check    # exit code 1 if a page differs from the code

Reads the sources with `ast`. An error is a call with a `code`; its message is shown with `…` for
each part that is known only when the error occurs. Where a code has several messages, the page
has the shortest; where the message is another program's, what to try. An error prints both.
Defects of Penstock are left out.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WORDS = 24  # of a message; a page stays below 1,500 words
_BEFORE = {
    "config": "The pipeline file, an option or a connector's configuration. Exit code 2.",
    "connector": "A connector was not found, installed or started. Exit code 4; 5 if it is the "
    "destination; 2 if the command names something else than a connector.",
    "import": "`penstock import`. Exit code 2.",
    "read": "`penstock.read` in Python. Exit code 2.",
    "ui": "The pages in a browser.",
    "usage": "The command line itself. Exit code 2.",
    "write": "`penstock.write` in Python. Exit code 2.",
}
_DURING = {
    "codec": "A row that cannot be written as a line. Exit code 4.",
    "source": "The source failed. Exit code 4.",
    "transform": "A transform or an enrichment failed. Exit code 4.",
    "destination": "The destination failed. Exit code 5.",
    "schema": "A schema cannot be read, or a change of it is refused. Exit code 3.",
}
_MACHINE = {
    "state": "The state store, or a saved state. Exit code 6.",
    "log": "The log that keeps rows until they are committed. Exit code 6.",
    "disk": "A disk of this machine. Exit code 6.",
    "lane": "The process that reads a source. Exit code 4.",
    "spark": "Spark, Java or their jars. Exit code 2, or 5 after the first rows.",
    "table": "A table that is shown. Exit code 2.",
}
_HEAD = """# {title}

*You want to* look up an error's code.
*Presupposes:* an error's `code`, as its last lines or `--json` show it.

{text}

"""
_PAGES = {
    "errors.md": (
        "Error codes",
        "A code is stable: `--json`, the report and the log have it. The error itself says what "
        "to try next. This page has the codes of errors before a run, and two more "
        "have [those of sources and destinations](errors-run.md) and [those of state, disks and "
        "Spark](errors-machine.md). They are written from the code by `python "
        "scripts/error_page.py`; `…` is what is known only when the error occurs. "
        "[Find what is wrong](troubleshooting.md) shows what to look at first.\n\n"
        "A code that begins with `defect` is a fault of Penstock: please report it with the file "
        "that the error names.",
        _BEFORE,
    ),
    "errors-run.md": (
        "Error codes: sources and destinations",
        "[Error codes](errors.md) explains what a code is. "
        "A code that begins with `source` may begin with `destination` or `transform` if a "
        "connector of that role does the same.",
        _DURING,
    ),
    "errors-machine.md": (
        "Error codes: state, disks, Spark",
        "[Error codes](errors.md) explains what a code is.",
        _MACHINE,
    ),
}


def main() -> int:
    pages = {DOCS / name: text for name, text in written().items()}
    if "--check" in sys.argv[1:]:
        return 0 if all(page.read_text() == text for page, text in pages.items()) else 1
    for page, text in pages.items():
        page.write_text(text)
    return 0


def written() -> dict[str, str]:
    """The text of each page, by the page's name."""
    codes = _codes()
    families = {code.partition(".")[0] for code in codes}
    if unknown := families.difference(_BEFORE, _DURING, _MACHINE):
        raise SystemExit(f"no page has the codes that begin with: {', '.join(sorted(unknown))}")
    return {
        name: _HEAD.format(title=title, text=text)
        + "\n\n".join(_section(family, about, codes) for family, about in shown.items())
        + "\n"
        for name, (title, text, shown) in _PAGES.items()
    }


def _section(family: str, about: str, codes: dict[str, set[str]]) -> str:
    rows = [f"## {family}", "", about, ""]
    for code, messages in sorted(codes.items()):
        if code.partition(".")[0] == family:
            message = min(filter(None, map(_shown, sorted(messages))), key=len, default="")
            rows.append(f"- `{code}`: {message}" if message else f"- `{code}`")
    return "\n".join(rows)


def _codes() -> dict[str, set[str]]:
    codes: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "src" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for code, message in _raised(node):
                codes[code].add(message)
    return codes


def _raised(node: ast.AST) -> list[tuple[str, str]]:
    if not isinstance(node, ast.Call):
        return []
    given = {k.arg: k.value for k in node.keywords}
    if "code" not in given or (isinstance(node.func, ast.Name) and node.func.id == "Defect"):
        return []
    message = _text(node.args[0]) if node.args else ""
    message = message if _shown(message) else _text(given.get("hint"))
    codes = _texts(given["code"])
    found = [c.replace("….", "source.", 1) if c.startswith("….") else c for c in codes]
    return [(c, message) for c in found if "." in c and "…" not in c]


def _texts(node: ast.expr) -> list[str]:
    """Each text that it may be."""
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    return [_text(node)]


def _text(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) if isinstance(v, ast.Constant) else "…" for v in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "…") + (_text(node.right) or "…")
    return _text(node.body) if isinstance(node, ast.IfExp) else ""


def _shown(message: str) -> str:
    """Its first words, as Markdown; nothing if all of it is known only when the error occurs."""
    text = " ".join(message.split()).replace("<", "&lt;").replace("*", "\\*")
    while "……" in text:
        text = text.replace("……", "…")
    if not any(letter.isalpha() for letter in text):
        return ""
    words = text.split(" ")
    return text if len(words) <= WORDS else " ".join(words[:WORDS]).rstrip(" ,:;") + " [...]"


if __name__ == "__main__":
    sys.exit(main())

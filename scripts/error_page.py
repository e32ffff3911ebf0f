"""Writes `docs/errors.md`, the page of error codes, from the errors that the code raises.

    python scripts/error_page.py            # writes the page
    python scripts/error_page.py --check    # exit code 1 where the page is not that

Reads the sources with `ast`: a call with a `code`, its message and its `hint`; what is only known
when it happens stands as `…`. Faults of Penstock itself (`Defect`) are left out.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "errors.md"
_FAMILIES = {
    "config": "The pipeline file, an option or a connector's configuration. Exit code 2.",
    "connector": "A connector could not be found, installed or started. Exit code 4; 5 where it is "
    "the destination, 2 where what was named is not what it should be.",
    "source": "The source failed. Exit code 4.",
    "transform": "A transform or an enrichment failed. Exit code 4.",
    "destination": "The destination failed. Exit code 5.",
    "schema": "A schema cannot be read, or a change of it is refused. Exit code 3.",
    "state": "The state store, or a saved state. Exit code 6.",
    "log": "The log in which rows are kept until they are committed. Exit code 6.",
    "disk": "A disk of this machine. Exit code 6.",
    "lane": "The process that reads a source. Exit code 4.",
    "spark": "Spark, Java or their jars. Exit code 2, or 5 once rows were on their way.",
    "read": "`penstock.read` in Python. Exit code 2.",
    "write": "`penstock.write` in Python. Exit code 2.",
    "usage": "The command line itself. Exit code 2.",
}
_HEAD = """# Error codes

*Presupposes:* an error's `code`, as an error's last lines or `--json` show it.

An error says what happened, where, and what to do next; its `code` is stable, and stands in
`--json`, in the report and in the log. This page has every code with what is said and, in brackets,
what to try. It is written from the code itself by `python scripts/error_page.py`: `…` stands for
what is known only when it happens. What to look at first: [troubleshooting](troubleshooting.md).

A code that begins with `source` may begin with `destination` or `transform`, where a connector of
that role does the same. A code that begins with `defect` is a fault of Penstock: please report it
with the file that the error names.
"""


class Said(NamedTuple):
    message: str
    hint: str


def main() -> int:
    page = written()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == page else 1
    PAGE.write_text(page)
    return 0


def written() -> str:
    """The page."""
    codes: dict[str, set[Said]] = defaultdict(set)
    for path in sorted((ROOT / "src" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for code, said in _raised(node):
                codes[code].add(said)
    parts = [_HEAD]
    for family, about in _FAMILIES.items():
        ours = {c: s for c, s in sorted(codes.items()) if c.partition(".")[0] == family}
        parts.append(
            f"## {family}\n\n{about}\n\n| code | what is said, and what to try |\n|---|---|"
        )
        for code, many in ours.items():
            said = "<br>".join(filter(None, (_line(one) for one in sorted(many))))
            parts.append(f"| `{code}` | {said or 'its words say what is wrong'} |")
        parts.append("")
    return "\n".join(parts)


def _line(one: Said) -> str:
    message, hint = _cell(one.message), _cell(one.hint)
    if message in ("", "…", "…: …", "…:…: …"):  # another's words
        message = ""
    return f"{message} *({hint})*" if message and hint else message or (hint and f"*({hint})*")


def _raised(node: ast.AST) -> list[tuple[str, Said]]:
    if not isinstance(node, ast.Call):
        return []
    given = {k.arg: k.value for k in node.keywords}
    if "code" not in given or (isinstance(node.func, ast.Name) and node.func.id == "Defect"):
        return []
    said = Said(_text(node.args[0]) if node.args else "", _text(given.get("hint")))
    codes = _texts(given["code"])
    found = [c.replace("….", "source.", 1) if c.startswith("….") else c for c in codes]
    return [(c, said) for c in found if "." in c and "…" not in c]


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


def _cell(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    while "……" in shown:
        shown = shown.replace("……", "…")
    return shown


if __name__ == "__main__":
    sys.exit(main())

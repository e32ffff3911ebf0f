"""No line of a message stands alone as a statement, where it would be lost."""

import ast
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
STORED = (ast.Assign, ast.AnnAssign)  # what a text after it documents


def lost_texts(code: str) -> list[int]:
    """The lines of such texts; those of documentation are none."""
    found: list[int] = []
    for node in ast.walk(ast.parse(code)):
        body = getattr(node, "body", None)
        for at, each in enumerate(body if isinstance(body, list) else []):
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                continue
            owner = isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            )
            documents = at == 0 or isinstance(body[at - 1], STORED)
            if isinstance(each.value.value, str) and not (owner and documents):
                found.append(each.lineno)
    return found


def test_a_lost_line_is_found() -> None:
    assert lost_texts('def f():\n    """Doc."""\n    g()\n    "lost"\n') == [4]
    assert lost_texts('X = 1\n"""Doc of X."""\ndef f():\n    """Doc."""\n') == []


def test_no_line_of_a_message_is_lost() -> None:
    found = {str(p): lost_texts(p.read_text()) for p in SOURCE.rglob("*.py")}
    assert not {path: lines for path, lines in found.items() if lines}

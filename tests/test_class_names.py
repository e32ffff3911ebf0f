"""One class name, one class: a name that is found by grep is found once."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
SIBLINGS = {"Answer", "Line", "MessageType", "Writer"}
"""The same role in two protocols, in modules of the same name."""


def test_no_public_class_shares_its_name_with_another() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(SOURCE)))
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in SIBLINGS} == {}
    for name in SIBLINGS & shared.keys():
        assert all(place.startswith("protocols/") for place in shared[name]), name

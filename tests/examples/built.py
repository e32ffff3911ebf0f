"""The examples' connectors as files: ``python_source()`` and so on give a built component with its
manifest. Built once for all checkouts, and anew where anything it is made of has changed.

For other tests: put this folder on ``sys.path`` and ``import built``."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "protocols" / "rapidbyte"))

import rapidbyte_guests  # noqa: E402


def _builds() -> ModuleType:
    """By its path: ``build`` is a name that others have too."""
    path = ROOT / "examples" / "rapidbyte" / "build.py"
    spec = importlib.util.spec_from_file_location("rapidbyte_examples", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses ask for it
    spec.loader.exec_module(module)
    return module


EXAMPLES = _builds().EXAMPLES
CACHE = rapidbyte_guests.CACHE
COMPILED = CACHE / "compiled"
"""Machine code of components; the tests of the protocol use the same folder."""


def example(name: str) -> Path:
    """``name``: a folder of ``examples/rapidbyte``, such as ``python-source``."""
    made = EXAMPLES[name]
    return rapidbyte_guests.built(
        f"example-{name}", made.sources(), lambda out: made.build(out, CACHE / "zig")
    )


def python_source() -> Path:
    """``numbers``: rows, batch_rows, start."""
    return example("python-source")


def python_destination() -> Path:
    """Lines of JSON to a TCP peer: host, port."""
    return example("python-destination")


def python_postgres() -> Path:
    """Tables of a Postgres server: host, port, user, password, database, schema."""
    return example("python-postgres")


def python_transform() -> Path:
    """Rules for rows: lowercase, required, minimum."""
    return example("python-transform")


def c_source() -> Path:
    """``numbers`` again: rows, batch_rows, start."""
    return example("c-source")


def c_destination() -> Path:
    """Counts: checkpoint_frames, fail_after, fail_category, fail_retryable, fail_commit_state."""
    return example("c-destination")


def c_transform() -> Path:
    """Hands frames on."""
    return example("c-transform")

"""Penstock: any data connector, any source to any destination, on one PySpark pipeline.

The public names (docs/python.md), each imported on first use, so that ``import penstock`` stays
cheap. Only names listed here are public.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api.reading import Read, read
    from penstock.api.spark_source import register
    from penstock.api.verbs import check, discover, plan, rejects, run, run_all, runs, state
    from penstock.api.writing import write
    from penstock.errors import PenstockError
    from penstock.model.report import Report

__version__ = "0.2.0"

_VERBS = "penstock.api.verbs"
_HOMES = {
    "PenstockError": "penstock.errors",
    "Read": "penstock.api.reading",
    "Report": "penstock.model.report",
    "check": _VERBS,
    "discover": _VERBS,
    "plan": _VERBS,
    "read": "penstock.api.reading",
    "register": "penstock.api.spark_source",
    "rejects": _VERBS,
    "run": _VERBS,
    "run_all": _VERBS,
    "runs": _VERBS,
    "state": _VERBS,
    "write": "penstock.api.writing",
}

__all__ = [
    "PenstockError",
    "Read",
    "Report",
    "__version__",
    "check",
    "discover",
    "plan",
    "read",
    "register",
    "rejects",
    "run",
    "run_all",
    "runs",
    "state",
    "write",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)

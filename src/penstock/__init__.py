"""Penstock: any data connector, any source to any destination, on one PySpark pipeline.

The public names, each imported when first asked for: ``import penstock`` stays cheap. What is not
listed here is no public interface.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config.load import load_pipeline
    from penstock.config.pipeline import Pipeline
    from penstock.engine.run import run_pipeline
    from penstock.errors import PenstockError
    from penstock.model.report import Report

__version__ = "0.1.0"

_HOMES = {
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.config.pipeline",
    "Report": "penstock.model.report",
    "load_pipeline": "penstock.config.load",
    "run_pipeline": "penstock.engine.run",
}

__all__ = [
    "PenstockError",
    "Pipeline",
    "Report",
    "__version__",
    "load_pipeline",
    "run_pipeline",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)

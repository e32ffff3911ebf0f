"""Builds the output of Penstock where it is the target of a Singer runner: states and ``--about``.

Not here: printing (``cli.serve``); reading records and states, as those of a tap
(``record_reader``). Source: the Singer SDK's ``--about``.
"""

from typing import Any


def state(blob: str, taken: int, rejected: int) -> str:
    """Returns the line that gives a state back: only the state, since Singer has no place for
    counts."""
    del taken, rejected
    return blob


def about(version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to ``--about --format=json``."""
    return {
        "name": "penstock",
        "description": "Writes Parquet and Delta tables",
        "version": version,
        "capabilities": ["about", "activate-version", "batch"],
        "settings": config_schema,
    }

"""Builds the output of Penstock where it is the target of a Singer runner: states and ``--about``.

Not here: printing (``cli.serve``); reading records and states, as those of a tap
(``record_reader``). Source: the Singer SDK's ``--about``.
"""

from typing import Any

STATE = "{}"
"""The template of a state's line on stdout; ``{}`` is replaced by the state."""


def about(version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
    """The answer to ``--about --format=json``."""
    return {
        "name": "penstock",
        "description": "Writes Parquet and Delta tables through Spark",
        "version": version,
        "capabilities": ["about", "activate-version", "batch"],
        "settings": config_schema,
    }

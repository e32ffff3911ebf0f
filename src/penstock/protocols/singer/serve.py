"""What a Singer runner hears where Penstock is its target.

Neighbour: ``cli.serve`` prints it; records and states are read as a tap's are (``record_reader``).
Source: the Singer SDK's ``--about``.
"""

from typing import Any

STATE = "{}"
"""A line of stdout, with ``{}`` where the state goes."""


def about(version: str, config_schema: dict[str, Any]) -> dict[str, Any]:
    """What a runner asks with ``--about --format=json``."""
    return {
        "name": "penstock",
        "description": "Writes Parquet and Delta tables through Spark",
        "version": version,
        "capabilities": ["about", "activate-version", "batch"],
        "settings": config_schema,
    }

"""What an Airbyte host hears where Penstock is its destination, and the catalog that it gives.

Neighbours: ``cli.serve`` prints these lines; records and states are read as a source's are
(``lines``). Source: protocol, Destination; specification, Destination.
"""

import json
import time
from typing import Any

import msgspec

from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import Catalog, ConfiguredStream, DestinationSyncMode, SyncMode
from penstock.protocols.airbyte.catalog import catalog_of

STATE = '{"type":"STATE","state":{}}'
"""A line of stdout, with ``{}`` where the state goes."""


def spec(config_schema: dict[str, Any]) -> str:
    return _line(
        "SPEC",
        "spec",
        {
            "connectionSpecification": config_schema,
            "supportsIncremental": True,
            "supported_destination_sync_modes": [m.value for m in DestinationSyncMode],
            "protocol_version": "0.18.0",
        },
    )


def status(fault: str | None) -> str:
    """``fault``: why it would not work, or None."""
    told = {"status": "SUCCEEDED"} if fault is None else {"status": "FAILED", "message": fault}
    return _line("CONNECTION_STATUS", "connectionStatus", told)


def error(message: str, hint: str | None) -> str:
    told = {"message": f"{message}; {hint}" if hint else message, "failure_type": "system_error"}
    now = time.time() * 1000
    return _line("TRACE", "trace", {"type": "ERROR", "emitted_at": now, "error": told})


def _line(kind: str, key: str, body: dict[str, Any]) -> str:
    return json.dumps({"type": kind, key: body}, separators=(",", ":"))


def configured(raw: bytes) -> tuple[Catalog, tuple[ConfiguredStream, ...]]:
    """A ConfiguredAirbyteCatalog. A generation that truncates (``minimum_generation_id`` equals
    ``generation_id``) overwrites, whatever the mode says. Raises ``ConfigError``."""
    try:
        entries: list[dict[str, Any]] = msgspec.json.decode(raw, type=dict[str, Any])["streams"]
        given = [
            (entry, catalog_of({"streams": [entry["stream"]]})[0].streams) for entry in entries
        ]
        streams = tuple(_configured(entry, one) for entry, (one,) in given)
    except (msgspec.MsgspecError, SourceError, LookupError, TypeError, ValueError) as e:
        raise ConfigError(
            f"the configured catalog cannot be read: {e}",
            code="config.catalog",
            hint="give a ConfiguredAirbyteCatalog",
        ) from e
    return Catalog(tuple(s.stream for s in streams)), streams


def _configured(entry: dict[str, Any], stream: Any) -> ConfiguredStream:
    mode = DestinationSyncMode(entry.get("destination_sync_mode") or "append")
    generation, minimum = entry.get("generation_id"), entry.get("minimum_generation_id")
    if generation and generation == minimum:
        mode = DestinationSyncMode.overwrite
    return ConfiguredStream(
        stream=stream,
        sync_mode=SyncMode(entry.get("sync_mode") or "full_refresh"),
        destination_sync_mode=mode,
        cursor_field=tuple(entry.get("cursor_field") or ()),
        primary_key=tuple(tuple(path) for path in entry.get("primary_key") or ()),
    )

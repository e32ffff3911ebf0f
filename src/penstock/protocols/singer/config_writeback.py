"""Reads back the changes that a tap makes to its configuration file, while it runs and when it
ends.

A tap that renews a token writes it into its configuration file (specification, Config); if the
token is not read back, the access is lost. The content is never logged. Not here: giving the tap
its copy (``command_line``), saving the change (the engine, by the ``Control`` event).
"""

from typing import Any, cast

import msgspec

from penstock.protocols.singer.command_line import CONFIG
from penstock.runtimes.contract import ByteChannel


class WriteBack:
    """Compares a tap's configuration file with its last known content."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._given = config
        self._seen = msgspec.json.encode(config)
        self._last = msgspec.json.decode(self._seen)

    def changed(self, channel: ByteChannel) -> dict[str, Any] | None:
        """Returns the whole configuration where it changed since the last call, else None. Keys
        that the tap omitted keep their value. A half-written file is read again by a later call."""
        content = channel.private(CONFIG)
        if content is None or content == self._seen:
            return None
        try:
            written = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not isinstance(written, dict):
            return None
        self._seen = content
        config = {**self._given, **cast(dict[str, Any], written)}
        if config == self._last:
            return None
        self._last = config
        return config

"""What a tap changed in its config: read back while it runs, and when it has ended.

A tap that renews a token writes it into the file it was given (specification, Config); what is not
read back is lost, and with it the access. Its content is never logged. Neighbours: ``command_line``
gives the tap its own copy; whoever reads the ``Control`` event keeps it.
"""

from typing import Any, cast

import msgspec

from penstock.protocols.singer.command_line import CONFIG
from penstock.runtimes.contract import ByteChannel


class WriteBack:
    """The config as it was given, and as it was last seen."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._given = config
        self._seen = msgspec.json.encode(config)
        self._known = msgspec.json.decode(self._seen)

    def changed(self, channel: ByteChannel) -> dict[str, Any] | None:
        """The whole config where it is another than when last seen; keys that the tap left out keep
        their value. A file that is half written is looked at again later."""
        content = channel.private(CONFIG)
        if content is None or content == self._seen:
            return None
        try:
            found = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not isinstance(found, dict):
            return None
        self._seen = content
        whole = {**self._given, **cast(dict[str, Any], found)}
        if whole == self._known:
            return None
        self._known = whole
        return whole

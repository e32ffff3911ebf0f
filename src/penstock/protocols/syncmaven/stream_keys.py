"""Serves keys to the connector of one stream during a conversation, and counts their checkpoints.

One port and one server for all processes of the stream. Their writes are covered by a checkpoint
once a ``stream-result`` is accepted (of an enrichment: once the rows of a table are answered), and
becomes durable with the ack, or the rows, that carry the checkpoint; the rest is dropped when the
conversation ends (``Store.end_keys``). Not here: the server (``state_rpc``), when a checkpoint is
made (``writer``, ``enrichment_run``).
"""

from contextlib import ExitStack
from typing import Self

from penstock.model.catalog import StreamId
from penstock.model.state import StateScope, StateType
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.runtimes.masking import Masker
from penstock.store.keys import KeyPort, OpenKeys


class StreamKeys:
    """``masker``: gets the secrets of the server before the connector does. ``address``: where the
    server listens; None: the connector gets no server. ``scope``: of the checkpoints."""

    def __init__(
        self,
        stream: StreamId,
        keys: OpenKeys,
        masker: Masker,
        address: str | None = "127.0.0.1",
        *,
        scope: str | None = None,
    ) -> None:
        self.scope = scope or StateScope(StateType.stream, stream).key
        """The scope of checkpoints: the stream's, even if the source's states are shared, since one
        stream's checkpoint must not cover rows of another."""
        self._keys = keys()
        self._server = (
            None if address is None else StateServer(self._keys, stream=stream, host=address)
        )
        self._masker = masker
        self._stack = ExitStack()

    def open(self) -> Self:
        """Raises ``StateError`` (``state.rpc_failed``)."""
        with ExitStack() as opening:
            opening.callback(self._keys.close)
            self._keys.begin(self.scope)
            if self._server is not None:
                self._masker.add(self._server.secrets)
                opening.enter_context(self._server)
            self._stack = opening.pop_all()
        return self

    @property
    def port(self) -> KeyPort:
        """The port for Penstock's own keys next to the connector's, under the same checkpoints."""
        return self._keys

    def environment(self) -> dict[str, str]:
        return {} if self._server is None else self._server.environment()

    def checkpoint(self) -> int:
        """Returns the number of the checkpoint that covers the keys stored so far; 0: there are
        none."""
        return self._keys.checkpoint()

    def close(self) -> None:
        self._stack.close()

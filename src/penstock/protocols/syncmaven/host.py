"""Decides where a connector's processes run, and opens the keys that are served to them.

Each phase of a conversation is its own process: a connector may exit after each answer (reference
§1.5), so one process a phase is the only rule that works for all. Not here: the content of a phase
(``probe``, ``session``), how keys are served (``stream_keys``).
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.protocols.syncmaven.stream_keys import StreamKeys
from penstock.runtimes.contract import Runtime
from penstock.runtimes.masking import Masker
from penstock.store.keys import MemoryKeys, OpenKeys

_QUESTION = StreamId.of(None, "")  # a question concerns no stream
RuntimeIn = Callable[[Mapping[str, str]], Runtime]
"""The runtime with these variables in the environment of what it starts."""


class Host:
    """``runtime_in``: makes the runtime for a phase. ``keys``: opens a port to the connector's
    keys; None: there are none. ``masker``: masks the connector's output. ``address``: returns where
    their server has to listen for the connector; None: it could not reach any, and is served
    none."""

    def __init__(
        self,
        runtime_in: RuntimeIn,
        keys: OpenKeys | None = None,
        masker: Masker | None = None,
        address: Callable[[], str | None] = lambda: "127.0.0.1",
    ) -> None:
        self._runtime_in, self._keys = runtime_in, keys
        self._masker = Masker() if masker is None else masker
        self._address = address

    def runtime(self, environment: Mapping[str, str] | None = None) -> Runtime:
        return self._runtime_in(environment or {})

    @contextmanager
    def question(self) -> Generator[Runtime]:
        """Yields the runtime for a phase of one question. Its process also gets a state, which is
        empty and dropped at the end: a connector may need ``RPC_URL`` to start, and keeps nothing
        before it gets a stream. Raises ``StateError`` (``state.rpc_failed``)."""
        address = self._address()
        if address is None:
            yield self.runtime()
            return
        with StateServer(MemoryKeys(), stream=_QUESTION, host=address) as server:
            self._masker.add(server.secrets)
            yield self.runtime(server.environment())

    def open_keys(self, stream: StreamId, scope: str | None = None) -> StreamKeys | None:
        """Returns the keys of one stream, for the caller to close. ``scope``: of the checkpoints,
        where they are not the stream's own. Raises ``StateError``."""
        if self._keys is None:
            return None
        address = self._address()
        return StreamKeys(stream, self._keys, self._masker, address, scope=scope).open()

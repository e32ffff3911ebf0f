"""Says where a connector's processes run, and opens the keys that they are served.

Each phase of a conversation is a process of its own: a connector may exit after each answer
(reference §1.5), so that one process a phase is the only rule that holds for all. Not here: what a
phase says (``probe``, ``session``), how keys are served (``stream_keys``).
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.protocols.syncmaven.stream_keys import StreamKeys
from penstock.runtimes.contract import Runtime
from penstock.runtimes.masking import Masker
from penstock.store.keys import MemoryKeys, OpenKeys

_QUESTION = StreamId.of(None, "")  # a question is about no stream
RuntimeIn = Callable[[Mapping[str, str]], Runtime]
"""The runtime with these variables in the environment of what it starts."""


class Host:
    """``runtime_in``: makes the runtime for a phase. ``keys``: opens a port to the connector's
    keys; None: there are none. ``masker``: of what the connector says. ``address``: finds where
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
        """Yields the runtime for a phase of one question. Its process is served a state too, which
        is empty and dropped at the end: a connector may need ``RPC_URL`` to start, and keeps
        nothing before it is sent a stream. Raises ``StateError`` (``state.rpc_failed``)."""
        address = self._address()
        if address is None:
            yield self.runtime()
            return
        with StateServer(MemoryKeys(), stream=_QUESTION, host=address) as server:
            self._masker.add(server.secrets)
            yield self.runtime(server.environment())

    def open_keys(self, stream: StreamId, scope: str | None = None) -> StreamKeys | None:
        """The keys of one stream, for the caller to close. ``scope``: of the checkpoints, where
        they are not the stream's own. Raises ``StateError``."""
        if self._keys is None:
            return None
        address = self._address()
        return StreamKeys(stream, self._keys, self._masker, address, scope=scope).open()

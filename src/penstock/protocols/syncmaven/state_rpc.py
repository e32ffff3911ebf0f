"""Serves the state of one stream to its connector, by HTTP: the state RPC.

A conversation with a connector opens one around the process that it starts::

    with StateServer(keys, stream=stream.id) as server:
        start(command, env=server.environment())

``keys`` is the port of the task that runs the connector (``OpenKeys``; ``MemoryKeys`` for spec and
check), so that each worker of a cluster serves its own connector and all of them share the store.
The connector's writes enter the run's overlay immediately. The conversation calls
``keys.begin(scope)`` before the first process and ``keys.checkpoint()`` when a stream-result is
accepted (``stream_keys``), and gives that number with the ack: writes become durable when the ack
is settled, and are dropped otherwise. ``server.secrets`` are for the masker, before the connector
starts.

It listens on loopback; ``host`` is another address for a connector in a container
(``runtimes.container.host_address``). The server runs in a daemon thread and ends with the context,
or with the process. Not here: the answers (``state_rpc_app``), the keys (``state_store``). uvicorn
is imported when a server starts. Source: the page, "State management".
"""

import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc_app import Secrets, StateApp
from penstock.protocols.syncmaven.state_store import StateStore
from penstock.store.keys import KeyPort

if TYPE_CHECKING:
    from uvicorn import Server

START_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_CONNECTIONS = 500  # more are answered 503
_THREADS = 4  # of calls that wait for the store
_TICK = 0.01
_LOOPBACK = "127.0.0.1"
_IP_FREEBIND = 15  # Linux; ``socket`` does not name it


class StateServer:
    """A context: it listens from its start to its end. The caller closes ``keys``."""

    def __init__(
        self,
        keys: KeyPort,
        *,
        stream: StreamId,
        host: str = _LOOPBACK,
    ) -> None:
        self._store = StateStore(keys, stream)
        self._host = host
        self._secrets = Secrets(*(secrets.token_urlsafe(24) for _ in range(3)))
        self._port = 0
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._failure: BaseException | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that must not appear in a log."""
        return (self._secrets.page, self._secrets.sdk, self._secrets.path)

    def environment(self) -> dict[str, str]:
        """Returns the connector's environment. ``RPC_URL`` holds a secret, for clients without a
        bearer."""
        name = f"[{self._host}]" if ":" in self._host else self._host
        return {
            "RPC_URL": f"http://{name}:{self._port}/{self._secrets.path}",
            "RPC_SECRET": self._secrets.page,
            "RPC_TOKEN": self._secrets.sdk,
        }

    def __enter__(self) -> "StateServer":
        from uvicorn import Config, Server

        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if self._host != _LOOPBACK:  # an engine makes its bridge with its first container
                listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
            listener.bind((self._host, 0))
        except OSError as e:
            listener.close()
            raise self._not_started(str(e)) from e
        self._port = listener.getsockname()[1]
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="state-rpc")
        config = Config(
            StateApp(self._store, self._secrets, self._executor),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # its own log would go to the worker's stderr
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = Server(config)
        self._thread = threading.Thread(
            target=self._serve, args=(self._server, listener), name="state-rpc", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                self._close()
                raise self._not_started(str(self._failure or f"nothing for {START_SECONDS:.0f} s"))
            time.sleep(_TICK)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _serve(self, server: "Server", listener: socket.socket) -> None:
        try:
            server.run(sockets=[listener])
        except BaseException as e:
            self._failure = e
        finally:
            listener.close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _not_started(self, reason: str) -> StateError:
        return StateError(
            f"the state RPC could not listen on {self._host}: {reason}",
            code="state.rpc_failed",
            hint="see that this machine may listen on that address",
        )

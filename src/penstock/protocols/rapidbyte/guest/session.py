"""Loads a connector, and calls its exported functions in one instance: open, discover, validate,
run, and always close.

A connector is loaded once (wrapped and compiled) and opened any number of times, each time
in a fresh instance: a guest keeps the configuration of its first open for as long as it lives. Not
here: threads (``probe``, ``guest_thread``), what an error means to a user (``errors``). Source: the
protocol, section 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from penstock.errors import PenstockError, Role
from penstock.protocols.rapidbyte.fastpath.packing import Packer
from penstock.protocols.rapidbyte.fastpath.wrap import OUT_OF_MEMORY, Unsupported, wrap
from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.guest.host_imports import imports
from penstock.protocols.rapidbyte.wire import messages, wit_records
from penstock.protocols.rapidbyte.wire.messages import (
    DiscoveredCatalog,
    RunRequest,
    RunSummary,
    ValidationReport,
)
from penstock.protocols.rapidbyte.wire.wasm_binary import MalformedBinary, memory_count
from penstock.protocols.rapidbyte.wire.wit import interface
from penstock.runtimes.masking import Masker
from penstock.runtimes.wasm.clock import clocked
from penstock.runtimes.wasm.compile_cache import CompileCache
from penstock.runtimes.wasm.contract import Grants, GuestLimits, Trap, TrapKind
from penstock.runtimes.wasm.instance import Instance


class BadAnswer(Exception):
    """Raised for an answer that the protocol does not allow."""


@dataclass(frozen=True)
class CompiledConnector:
    """A compiled connector. ``component``: wasmtime's. ``memories``: how many its modules define.
    ``plain``: why it runs without the fast path; None: it uses the fast path."""

    role: Role
    component: Any
    memories: int
    plain: str | None


def load(
    binary: bytes, role: Role, cache: CompileCache, *, plain: bool = False
) -> CompiledConnector:
    """Wraps a component for the fast path and compiles it; if it cannot be wrapped, it runs
    unwrapped. ``plain``: do not wrap. Raises ``Trap`` (``refused``)."""
    try:
        memories = max(1, memory_count(binary))
    except MalformedBinary as e:
        raise _no_component(e) from e
    if plain:
        return CompiledConnector(role, cache.component(binary), memories, "it was requested")
    try:
        return CompiledConnector(role, cache.component(wrap(binary)), memories, None)
    except (Unsupported, Trap) as e:
        return CompiledConnector(role, cache.component(binary), memories, str(e))


def _no_component(e: Exception) -> Trap:
    return Trap(TrapKind.refused, f"it is not a WebAssembly component: {e}")


class ComponentSession:
    """Opens, uses and closes one instance of a component, as a context manager. Each method raises
    ``FaultReturned`` (the connector's own error), ``Trap`` (the instance is gone) or
    :class:`BadAnswer`. ``seconds``: bound of guest work, for the whole session."""

    def __init__(
        self,
        loaded: CompiledConnector,
        host: HostFunctions,
        *,
        grants: Grants | None = None,
        memory: int | None = None,
        host_bytes: int = 0,
        seconds: float = 300.0,
        masker: Masker | None = None,
    ) -> None:
        self._loaded = loaded
        self._host = host
        self._interface = interface(loaded.role)
        self._session: int | None = None
        packer = Packer(clocked().engine) if loaded.plain is None else None
        self._instance = Instance(
            loaded.component,
            imports(host, packer),
            grants=grants,
            bounds=GuestLimits(
                memory=memory,
                host_bytes=host_bytes,
                memories=loaded.memories,
                transfer_memories=0 if packer is None else 1,
                seconds=seconds,
            ),
            masker=masker,
            log=lambda line: host.say("INFO", line),
            transfer_trap=OUT_OF_MEMORY,
        )
        host.attach(self._instance.waiting)
        if loaded.plain is not None:
            host.say(
                "WARN",
                f"the connector runs without the fast path ({loaded.plain}): its data moves at "
                "about 1 MB/s, and a call that carries 4 MB or more fails",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        """Seconds of guest work so far."""
        return self._instance.seconds

    def open(self, config: dict[str, Any]) -> None:
        session = self._call("open", messages.config_json(config))
        self._session = cast(int, session)

    def discover(self) -> DiscoveredCatalog:
        """Returns the catalog; without streams where the component does not export ``discover``,
        which is optional (section 3.1)."""
        if not self._instance.exports(self._interface, "discover"):
            return DiscoveredCatalog(streams=[])
        text = cast(str, self._call("discover", self._opened()))
        try:
            return messages.decode_catalog(text)
        except ValueError as e:
            raise BadAnswer(f"what discover gave is not a catalog: {e}") from e

    def validate(self) -> ValidationReport | None:
        """Returns the report; None where the component does not export ``validate``, which is
        optional (section 3)."""
        if not self._instance.exports(self._interface, "validate"):
            return None
        return wit_records.validation_report(self._call("validate", self._opened()))

    def run(self, request: RunRequest) -> RunSummary:
        answer = self._call("run", self._opened(), wit_records.request_record(request))
        summary = wit_records.run_summary(answer, self._loaded.role)
        if summary is None:
            raise BadAnswer(f"its summary has no part for the {self._loaded.role} role")
        return summary

    def close(self) -> None:
        """Closes the connector and frees its instance, sockets and frames. An error of the
        connector's ``close`` is only logged. Idempotent."""
        session, self._session = self._session, None
        try:
            if session is not None and not self._instance.dead:
                self._best_effort(lambda: self._call("close", session))
        finally:
            self._host.release()
            self._instance.close()

    def _opened(self) -> int:
        if self._session is None:
            raise BadAnswer("it is not open")
        return self._session

    def _call(self, function: str, *arguments: Any) -> Any:
        return wit_records.unwrap_result(self._instance.call(self._interface, function, *arguments))

    def _best_effort(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except (wit_records.FaultReturned, Trap, PenstockError) as e:
            self._host.say("WARN", f"the connector's close failed: {e}")

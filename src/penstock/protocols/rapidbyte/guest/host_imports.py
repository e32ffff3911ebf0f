"""Adapts a :class:`~penstock.protocols.rapidbyte.guest.host.HostFunctions` to the imports of a
component.

For a wrapped guest (``rapidbyte.fastpath.wrap``) bytes come as packed text and every error reaches
the guest. An unwrapped guest gets the host interface in wasmtime's form: one Python object per
byte, and an error that wasmtime cannot lower ends the guest (:class:`UnraisableError`). Not here:
what the functions do (``host``).
"""

from collections.abc import Callable
from typing import Any

from wasmtime.component import Variant

from penstock.protocols.rapidbyte.fastpath.packing import PIECE, Packer
from penstock.protocols.rapidbyte.guest.host import HostFunctions
from penstock.protocols.rapidbyte.wire.messages import Refusal
from penstock.protocols.rapidbyte.wire.wit import (
    FAST,
    FUNCTIONS,
    HOST,
    OPTION_RESULT,
    SOCKET_RESULT,
)
from penstock.protocols.rapidbyte.wire.wit_records import fault_record
from penstock.runtimes.wasm.contract import Imports

_NONE, _FAULT = -1, -2
_TAGS = {"data": "0", "eof": "1", "would-block": "2", "spin": "3"}

Function = Callable[..., Any]


class UnraisableError(Exception):
    """Raised for an error that wasmtime cannot carry to an unwrapped guest; it ends the guest."""


def imports(host: HostFunctions, packer: Packer | None) -> Imports:
    """Returns the import functions by interface and name. ``packer``: for a wrapped guest; None:
    the guest runs unwrapped."""
    typed = {name: _typed(host, name) for name in FUNCTIONS}
    if packer is None:
        return {HOST: typed}
    # A wrapped guest's outer component imports HOST too, and never calls it.
    return {HOST: typed, FAST: typed | _Carried(host, packer).functions()}


def _typed(host: HostFunctions, name: str) -> Function:
    function: Function = getattr(host, name.replace("-", "_"))
    convert = _CONVERTERS.get(name)
    untellable = name in OPTION_RESULT or name in SOCKET_RESULT

    def run(*arguments: Any) -> Any:
        try:
            value = function(*arguments)
            return value if convert is None else convert(value)
        except Refusal as e:
            host.record_refusal(e)
            if untellable:
                raise UnraisableError(str(e)) from e
            return fault_record(e.fault)

    return run


def _read_variant(read: tuple[str, bytes]) -> Variant:
    kind, data = read
    return Variant("data", data) if kind == "data" else Variant(kind)


_CONVERTERS: dict[str, Function] = {"frame-read": bytes, "socket-read": _read_variant}


class _Carried:
    """Implements the functions that ``FAST`` has in addition to the typed ones. On an error they
    return a marker, and the fault is kept until ``take-error`` fetches it."""

    def __init__(self, host: HostFunctions, packer: Packer) -> None:
        self._host = host
        self._packer = packer
        self._fault: Refusal | None = None

    def functions(self) -> dict[str, Function]:
        return {
            "push": self._push,
            "pull": self._pull,
            "sread": self._kept(self._sread, "X"),
            "swrite": self._kept(self._swrite, _FAULT),
            "next": self._kept(self._next, _FAULT),
            "sget": self._kept(self._sget, "X"),
            "take-error": self._take_error,
            "fnew": self._kept(self._host.frame_new, _FAULT),
            "fseal": self._kept(self._done(self._host.frame_seal), _FAULT),
            "flen": self._kept(self._host.frame_len, _FAULT),
            "femit": self._kept(self._done(self._host.emit_batch), _FAULT),
            "finish": self._kept(self._finish, _FAULT),
        }

    def _kept(self, function: Function, marker: Any) -> Function:
        """Wraps a function: a refusal is kept for ``take-error`` and ``marker`` is returned."""

        def run(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Refusal as e:
                self._host.record_refusal(e)
                self._fault = e
                return marker

        return run

    @staticmethod
    def _done(function: Callable[[int], None]) -> Function:
        def run(handle: int) -> int:
            function(handle)
            return 0

        return run

    def _take_error(self) -> Any:
        fault, self._fault = self._fault, None
        if fault is None:
            raise UnraisableError("no error is waiting")
        return fault_record(fault.fault)

    # Where push and pull return no result, the adapter calls the typed function instead.

    def _push(self, handle: int, text: str) -> int:
        try:
            return self._host.frame_write(handle, self._packer.unpack(text))
        except Refusal as e:
            self._host.record_refusal(e)
            return _NONE

    def _pull(self, handle: int, offset: int, length: int) -> str:
        if length > PIECE:
            return ""
        try:
            return self._packer.pack(self._host.frame_read(handle, offset, length))
        except Refusal:
            return ""

    def _finish(self, handle: int, text: str) -> int:
        """Writes the last bytes of a frame, seals it and emits it, in one call."""
        self._host.frame_write(handle, self._packer.unpack(text))
        self._host.frame_seal(handle)
        self._host.emit_batch(handle)
        return 0

    def _next(self) -> int:
        handle = self._host.next_batch()
        return _NONE if handle is None else handle

    def _sget(self, scope: int, key: str) -> str:
        value = self._host.state_get(scope, key)
        return "0" if value is None else "1" + value

    def _sread(self, handle: int, length: int) -> str:
        kind, data = self._host.socket_read(handle, length, absorbed=True)
        return _TAGS[kind] + (self._packer.pack(data) if data else "")

    def _swrite(self, handle: int, text: str) -> int:
        taken = self._host.socket_write(handle, self._packer.unpack(text))
        return _NONE if taken is None else taken

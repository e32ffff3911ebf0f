"""Packs bytes as 7-bit ASCII text and unpacks them, at several GB/s: data crosses between a
component and Python as such text.

wasmtime's component interface for Python carries ``list<u8>`` as one 32-byte value per byte, but a
``string`` as one block, and CPython's text codec is fast for ASCII alone. So n bytes travel as
their n low halves (7 bits each) followed by ceil(n / 7) bytes that hold the top bits: bit ``i`` of
byte ``j`` is the top bit of byte ``i * ceil(n / 7) + j``. One WebAssembly routine packs and unpacks
on both sides (``packing.wat``): inside the adapter and, for Python, in :class:`Packer`.
"""

import ctypes
from importlib.resources import files
from typing import cast

from wasmtime import Engine, Func, Instance, Memory, Module, Store

from penstock.runtimes.wasm.clock import FAR

PIECE = 1 << 18
"""The most bytes that one crossing carries."""
SLACK = 64
"""Spare bytes after a buffer, since reads and writes may go beyond its end."""
PACKING = files("penstock.protocols.rapidbyte.fastpath").joinpath("packing.wat").read_text("ascii")
"""WebAssembly text of ``$pack`` and ``$unpack``, for a module with a memory."""
_LANES = 7


def packed_size(n: int) -> int:
    return n + (n + _LANES - 1) // _LANES


def unpacked_size(packed: int) -> int:
    """Returns the number of bytes that ``packed`` characters unpack to. Raises ``ValueError`` for a
    length that no data packs to."""
    rest = packed % (_LANES + 1)
    if rest == 1:
        raise ValueError(f"{packed} is not a length of packed data")
    return packed // (_LANES + 1) * _LANES + (rest - 1 if rest else 0)


_IN = 1 << 16
_OUT = _IN + packed_size(PIECE) + (1 << 12) & ~0xFFF
_PAGES = (_OUT + packed_size(PIECE) + SLACK >> 16) + 1

_MODULE = f"""(module
  (memory (export "memory") {_PAGES} {_PAGES})
  {PACKING}
  (func (export "pack") (param i32) (result i32)
    (call $pack (i32.const {_IN}) (local.get 0) (i32.const {_OUT})))
  (func (export "unpack") (param i32)
    (call $unpack (i32.const {_IN}) (local.get 0) (i32.const {_OUT}))))"""


class Packer:
    """Packs and unpacks for one thread, with its own WebAssembly store, without a deadline."""

    def __init__(self, engine: Engine) -> None:
        self._store = Store(engine)
        self._store.set_epoch_deadline(FAR)
        exports = Instance(self._store, Module(engine, _MODULE), []).exports(self._store)
        memory = cast(Memory, exports["memory"])
        address = ctypes.addressof(memory.data_ptr(self._store).contents)
        # Never grows, so its address stays; the store lives as long as the view.
        block = (ctypes.c_ubyte * (_PAGES << 16)).from_address(address)
        self._bytes = memoryview(block).cast("B")
        self._pack = cast(Func, exports["pack"])
        self._unpack = cast(Func, exports["unpack"])

    def pack(self, data: bytes | bytearray | memoryview) -> str:
        """Packs at most ``PIECE`` bytes. Raises ``ValueError`` for more."""
        n = len(data)
        if n > PIECE:
            raise ValueError(f"a piece of {n} bytes")
        self._bytes[_IN : _IN + n] = data
        return str(self._bytes[_OUT : _OUT + self._pack(self._store, n)], "ascii")

    def unpack(self, text: str) -> memoryview:
        """Unpacks a text; the view is valid until the next call. Raises ``ValueError``, also for
        text that is not ASCII."""
        raw = text.encode("ascii")
        n = unpacked_size(len(raw))
        if n > PIECE:
            raise ValueError(f"a piece of {n} bytes")
        self._bytes[_IN : _IN + len(raw)] = raw
        self._unpack(self._store, n)
        return self._bytes[_OUT : _OUT + n]

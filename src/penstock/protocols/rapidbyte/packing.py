"""Bytes as 7-bit ASCII text and back, at several GB/s: the form in which data crosses between a
component and Python.

wasmtime's component interface for Python carries ``list<u8>`` as one 32-byte value per byte, but a
``string`` as one block, and CPython's text codec is fast for ASCII alone. So n bytes travel as
their n low halves (7 bits each) followed by ceil(n / 7) bytes that hold the top bits: bit ``i`` of
byte ``j`` is the top bit of byte ``i * ceil(n / 7) + j``. One WebAssembly routine does both ways on
both sides: inside the adapter (``adapter_text``) and, for Python, in :class:`Packer`.
"""

import ctypes
from typing import cast

from wasmtime import Engine, Func, Instance, Memory, Module, Store

from penstock.runtimes.wasm.engine import FAR

PIECE = 1 << 18
"""Bytes of one piece at most: what one crossing carries."""
SLACK = 64
"""Bytes behind a buffer that may be read or written beyond its end."""
_LANES = 7
_WIDE = 16  # bytes of a vector

_LOW_BITS = f"(v128.const i8x16 {' '.join(['0x7f'] * _WIDE)})"
_TOP_BIT = f"(v128.const i8x16 {' '.join(['0x80'] * _WIDE)})"


def packed_size(n: int) -> int:
    return n + (n + _LANES - 1) // _LANES


def unpacked_size(packed: int) -> int:
    """Raises ``ValueError`` for a length that nothing packs to."""
    rest = packed % (_LANES + 1)
    if rest == 1:
        raise ValueError(f"{packed} is no length of packed data")
    return packed // (_LANES + 1) * _LANES + (rest - 1 if rest else 0)


def _lane(base: str, lane: int) -> str:
    """Address of position ``$j`` of a lane."""
    return (
        f"(i32.add (i32.add (local.get {base}) (local.get $j))"
        f" (i32.mul (local.get $m) (i32.const {lane})))"
    )


def _wide_loop(body: str) -> str:
    """``body`` for each vector of a lane; the last one overlaps the one before it."""
    return f"""
      (local.set $end (i32.sub (local.get $m) (i32.const {_WIDE})))
      (loop $wide
        {body}
        (if (i32.lt_u (local.get $j) (local.get $end)) (then
          (local.set $j (i32.add (local.get $j) (i32.const {_WIDE})))
          (if (i32.gt_u (local.get $j) (local.get $end)) (then
            (local.set $j (local.get $end))))
          (br $wide))))"""


def _pack_wide() -> str:
    steps = ["(local.set $t (v128.const i64x2 0 0))"]
    steps += [
        f"""
        (local.set $v (v128.load align=1 {_lane("$s", lane)}))
        (v128.store align=1 {_lane("$d", lane)} (v128.and (local.get $v) {_LOW_BITS}))
        (local.set $t (v128.or (local.get $t)
          (i8x16.shl (i8x16.shr_u (local.get $v) (i32.const 7)) (i32.const {lane}))))"""
        for lane in range(_LANES)
    ]
    steps.append(f"(v128.store align=1 {_lane('$d', _LANES)} (local.get $t))")
    return _wide_loop("".join(steps))


def _unpack_wide() -> str:
    steps = [
        "(local.set $t (v128.load align=1"
        " (i32.add (i32.add (local.get $s) (local.get $n)) (local.get $j))))"
    ]
    steps += [
        f"""
        (v128.store align=1 {_lane("$d", lane)} (v128.or
          (v128.load align=1 {_lane("$s", lane)})
          (v128.and (i8x16.shl (local.get $t) (i32.const {7 - lane})) {_TOP_BIT})))"""
        for lane in range(_LANES)
    ]
    return _wide_loop("".join(steps))


PACK = f"""
  (func $pack (param $s i32) (param $n i32) (param $d i32) (result i32)
    (local $m i32) (local $j i32) (local $end i32) (local $k i32) (local $v v128) (local $t v128)
    (local.set $m (i32.div_u (i32.add (local.get $n) (i32.const 6)) (i32.const {_LANES})))
    (if (i32.ge_u (local.get $m) (i32.const {_WIDE})) (then {_pack_wide()}
      (memory.copy (i32.add (local.get $d) (local.get $n))
        (i32.add (local.get $d) (i32.mul (local.get $m) (i32.const {_LANES}))) (local.get $m)))
    (else
      (memory.fill (i32.add (local.get $d) (local.get $n)) (i32.const 0) (local.get $m))
      (block $done (loop $byte
        (br_if $done (i32.ge_u (local.get $k) (local.get $n)))
        (i32.store8 (i32.add (local.get $d) (local.get $k))
          (i32.and (i32.load8_u (i32.add (local.get $s) (local.get $k))) (i32.const 127)))
        (local.set $j (i32.add (i32.add (local.get $d) (local.get $n))
          (i32.rem_u (local.get $k) (local.get $m))))
        (i32.store8 (local.get $j) (i32.or (i32.load8_u (local.get $j))
          (i32.shl
            (i32.shr_u (i32.load8_u (i32.add (local.get $s) (local.get $k))) (i32.const 7))
            (i32.div_u (local.get $k) (local.get $m)))))
        (local.set $k (i32.add (local.get $k) (i32.const 1)))
        (br $byte)))))
    (i32.add (local.get $n) (local.get $m)))
"""

UNPACK = f"""
  (func $unpack (param $s i32) (param $n i32) (param $d i32)
    (local $m i32) (local $j i32) (local $end i32) (local $k i32) (local $t v128)
    (local.set $m (i32.div_u (i32.add (local.get $n) (i32.const 6)) (i32.const {_LANES})))
    (if (i32.ge_u (local.get $m) (i32.const {_WIDE})) (then {_unpack_wide()})
    (else
      (block $done (loop $byte
        (br_if $done (i32.ge_u (local.get $k) (local.get $n)))
        (i32.store8 (i32.add (local.get $d) (local.get $k)) (i32.or
          (i32.load8_u (i32.add (local.get $s) (local.get $k)))
          (i32.shl
            (i32.and (i32.const 1) (i32.shr_u
              (i32.load8_u (i32.add (i32.add (local.get $s) (local.get $n))
                (i32.rem_u (local.get $k) (local.get $m))))
              (i32.div_u (local.get $k) (local.get $m))))
            (i32.const 7))))
        (local.set $k (i32.add (local.get $k) (i32.const 1)))
        (br $byte))))))
"""

_IN = 1 << 16
_OUT = _IN + packed_size(PIECE) + (1 << 12) & ~0xFFF
_PAGES = (_OUT + packed_size(PIECE) + SLACK >> 16) + 1

_MODULE = f"""(module
  (memory (export "memory") {_PAGES} {_PAGES})
  {PACK}{UNPACK}
  (func (export "pack") (param i32) (result i32)
    (call $pack (i32.const {_IN}) (local.get 0) (i32.const {_OUT})))
  (func (export "unpack") (param i32)
    (call $unpack (i32.const {_IN}) (local.get 0) (i32.const {_OUT}))))"""


class Packer:
    """Both ways for one thread; in a store of its own, whose deadline never comes."""

    def __init__(self, engine: Engine) -> None:
        self._store = Store(engine)
        self._store.set_epoch_deadline(FAR)
        exports = Instance(self._store, Module(engine, _MODULE), []).exports(self._store)
        memory = cast(Memory, exports["memory"])
        address = ctypes.addressof(memory.data_ptr(self._store).contents)
        # Never grows, so its address stays; the store is held as long as the view.
        block = (ctypes.c_ubyte * (_PAGES << 16)).from_address(address)
        self._bytes = memoryview(block).cast("B")
        self._pack = cast(Func, exports["pack"])
        self._unpack = cast(Func, exports["unpack"])

    def pack(self, data: bytes | bytearray | memoryview) -> str:
        """At most ``PIECE`` bytes."""
        n = len(data)
        if n > PIECE:
            raise ValueError(f"a piece of {n} bytes")
        self._bytes[_IN : _IN + n] = data
        return str(self._bytes[_OUT : _OUT + self._pack(self._store, n)], "ascii")

    def unpack(self, text: str) -> memoryview:
        """The bytes, valid until the next call. Raises ``ValueError`` (also for what is not
        ASCII)."""
        raw = text.encode("ascii")
        n = unpacked_size(len(raw))
        if n > PIECE:
            raise ValueError(f"a piece of {n} bytes")
        self._bytes[_IN : _IN + len(raw)] = raw
        self._unpack(self._store, n)
        return self._bytes[_OUT : _OUT + n]

"""The adapter component as WebAssembly text: the host interface, with bytes carried as text.

Nested next to a guest (``adapter``), it takes the guest's place as the host's caller: functions
that carry bytes are turned into calls of ``abi.FAST`` that carry packed text (``packing``); the
rest is passed on untouched. Also routed around here: ``err`` of ``result<option<T>, E>`` and of the
socket results, which wasmtime's Python interface cannot lower.

What a guest sees is what the plain host would show it, with one difference: writes to one frame are
gathered, and its seal is held back until its emit, so that a fault of a later write (the frame grew
beyond its bound) is told by a later call that names the frame.
"""

from penstock.protocols.rapidbyte.abi import FAST
from penstock.protocols.rapidbyte.adapter_types import EXPORT_TYPES, FAST_TYPE
from penstock.protocols.rapidbyte.packing import PACK, PIECE, SLACK, UNPACK, packed_size

OUT_OF_MEMORY = "out_of_transfer_memory"
"""A function of the adapter that is in the trace of a trap when its memory could not grow."""

ABSORBED = 60
"""Would-blocks answered without Python after the host said that the guest spins."""

PASSED_ON = (
    "log", "checkpoint", "metric", "emit-dlq-record", "state-put", "state-cas",
    "connect-tcp", "socket-close",
)  # fmt: skip
_SLOW = (
    "frame-write", "frame-read", "frame-drop",
)  # fmt: skip
_FAST = (
    "push", "pull", "sread", "swrite", "next", "sget", "take-error", "fnew", "fseal", "flen",
    "femit", "finish",
)  # fmt: skip

_LIFTED = (
    "frame-new", "frame-write", "frame-seal", "frame-len", "frame-read", "frame-drop", "emit-batch",
    "next-batch", "state-get", "socket-read", "socket-write",
)  # fmt: skip


_WRITES = 1 << 16  # gathered writes, or a read that fits
_TEXT = _WRITES + PIECE + (1 << 12)
_ARENA = _TEXT + packed_size(PIECE) + SLACK + 0xFFFF & ~0xFFFF
_RET = 1024  # return area of lifted functions
_SCRATCH = 2048  # return area of lowered calls
_MOST_PAGES = 1 << 14  # 1 GiB: what one call may hand over, whatever a guest may hold

_MEMORY = f"""
  (core module $mem
    (memory (export "memory") {(_ARENA >> 16) + 1} {_MOST_PAGES})
    (global $top (export "top") (mut i32) (i32.const {_ARENA}))
    (func ${OUT_OF_MEMORY} unreachable)
    (func (export "realloc") (param $old i32) (param $osz i32) (param $al i32) (param $n i32)
      (result i32) (local $p i32) (local $end i64) (local $have i64)
      (if (i32.and (i32.ne (local.get $old) (i32.const 0))
                   (i32.le_u (local.get $n) (local.get $osz)))
        (then (return (local.get $old))))
      (local.set $p (i32.and (i32.add (global.get $top) (i32.const 15)) (i32.const -16)))
      (local.set $end (i64.add (i64.extend_i32_u (local.get $p))
        (i64.add (i64.extend_i32_u (local.get $n)) (i64.const {SLACK}))))
      (local.set $have (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 16)))
      (if (i64.gt_u (local.get $end) (i64.const 0xffffffff)) (then (call ${OUT_OF_MEMORY})))
      (if (i64.gt_u (local.get $end) (local.get $have)) (then
        (if (i32.eq (i32.const -1) (memory.grow (i32.wrap_i64 (i64.shr_u
              (i64.add (i64.sub (local.get $end) (local.get $have)) (i64.const 65535))
              (i64.const 16)))))
          (then (call ${OUT_OF_MEMORY})))))
      (global.set $top (i32.sub (i32.wrap_i64 (local.get $end)) (i32.const {SLACK})))
      (if (local.get $old) (then
        (memory.copy (local.get $p) (local.get $old) (local.get $osz))))
      (local.get $p))
    (func (export "reset") (param i32) (global.set $top (i32.const {_ARENA})))
    (func (export "reset0") (global.set $top (i32.const {_ARENA})))
  )"""

_FRAMES = f"""
    ;; the frame that is being written: $len bytes, of which the last $n are gathered here; $sealed:
    ;; the guest has sealed it, and the host will be told together with what comes next
    (global $cur (mut i64) (i64.const 0)) (global $len (mut i64) (i64.const 0))
    (global $n (mut i32) (i32.const 0)) (global $sealed (mut i32) (i32.const 0))
    (func $ok64 (param $v i64) (result i32)
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i64.store (i32.const {_RET + 8}) (local.get $v)) (i32.const {_RET}))
    (func $give (param $h i64) (param $p i32) (param $n i32) (result i64)
      (call $push (local.get $h) (i32.const {_TEXT})
        (call $pack (local.get $p) (local.get $n) (i32.const {_TEXT}))))
    ;; the host keeps a fault of gathered writes with the frame
    (func $flush
      (if (global.get $n) (then
        (drop (call $give (global.get $cur) (i32.const {_WRITES}) (global.get $n)))
        (global.set $n (i32.const 0)))))
    ;; no frame has the handle 0, which stands for none here
    (func $written (param $h i64) (result i32)
      (i32.and (i64.ne (local.get $h) (i64.const 0))
        (i64.eq (local.get $h) (global.get $cur))))
    (func $leave
      (call $flush)
      (if (global.get $sealed) (then
        (drop (call $fseal (global.get $cur)))
        (global.set $sealed (i32.const 0))))
      (global.set $cur (i64.const 0)))
    (func $settle (if (global.get $sealed) (then (call $leave)) (else (call $flush))))
    (func (export "frame-write") (param $h i64) (param $p i32) (param $l i32) (result i32)
      (local $r i64) (local $c i32)
      (if (global.get $sealed) (then (call $leave)))
      (if (call $written (local.get $h)) (then
        (if (i32.gt_u (local.get $l) (i32.sub (i32.const {PIECE}) (global.get $n)))
          (then (call $flush)))
        (if (i32.le_u (local.get $l) (i32.const {PIECE})) (then
          (memory.copy (i32.add (i32.const {_WRITES}) (global.get $n)) (local.get $p)
            (local.get $l))
          (global.set $n (i32.add (global.get $n) (local.get $l)))
          (global.set $len (i64.add (global.get $len) (i64.extend_i32_u (local.get $l))))
          (return (call $ok64 (global.get $len)))))))
      (call $flush)
      (loop $again
        (local.set $c (select (local.get $l) (i32.const {PIECE})
          (i32.lt_u (local.get $l) (i32.const {PIECE}))))
        (local.set $r (call $give (local.get $h) (local.get $p) (local.get $c)))
        (if (i64.eq (local.get $r) (i64.const -1)) (then
          (global.set $cur (i64.const 0))
          (call $frame-write (local.get $h) (i32.const 0) (i32.const 0) (i32.const {_RET}))
          (return (i32.const {_RET}))))
        (local.set $p (i32.add (local.get $p) (local.get $c)))
        (br_if $again (local.tee $l (i32.sub (local.get $l) (local.get $c)))))
      (global.set $cur (local.get $h)) (global.set $len (local.get $r))
      (call $ok64 (local.get $r)))
    ;; -2: an error waits; a result without a value takes any
    (func $number (param $v i64) (result i32)
      (if (i64.eq (local.get $v) (i64.const -2)) (then (return (call $error))))
      (call $ok64 (local.get $v)))
    (func (export "frame-new") (param $c i64) (result i32) (local $r i64)
      (call $settle)
      (local.set $r (call $fnew (local.get $c)))
      (if (i64.gt_s (local.get $r) (i64.const 0)) (then
        (global.set $cur (local.get $r)) (global.set $len (i64.const 0))))
      (call $number (local.get $r)))
    (func (export "frame-seal") (param $h i64) (result i32)
      (if (i32.and (call $written (local.get $h)) (i32.eqz (global.get $sealed)))
        (then (global.set $sealed (i32.const 1)) (return (call $ok64 (i64.const 0)))))
      (call $leave) (call $number (call $fseal (local.get $h))))
    (func (export "frame-len") (param $h i64) (result i32)
      (call $settle) (call $number (call $flen (local.get $h))))
    (func (export "frame-drop") (param $h i64) (call $leave) (call $frame-drop (local.get $h)))
    (func (export "emit-batch") (param $h i64) (result i32) (local $t i32)
      (if (i32.and (call $written (local.get $h)) (global.get $sealed)) (then
        (local.set $t (call $pack (i32.const {_WRITES}) (global.get $n) (i32.const {_TEXT})))
        (global.set $n (i32.const 0)) (global.set $sealed (i32.const 0))
        (global.set $cur (i64.const 0))
        (return (call $number
          (call $finish (local.get $h) (i32.const {_TEXT}) (local.get $t))))))
      (call $leave) (call $number (call $femit (local.get $h))))
    (func $refused (param $h i64) (param $o i64) (param $l i64) (result i32)
      (call $frame-read (local.get $h) (local.get $o) (local.get $l) (i32.const {_RET}))
      (i32.const {_RET}))
    (func $packed (param $n i64) (result i64)
      (i64.add (local.get $n) (i64.div_u (i64.add (local.get $n) (i64.const 6)) (i64.const 7))))
    (func $pulled (param $h i64) (param $o i64) (param $l i64) (result i32)
      (call $pull (local.get $h) (local.get $o) (local.get $l) (i32.const {_SCRATCH}))
      (i64.eq (i64.extend_i32_u (i32.load (i32.const {_SCRATCH + 4})))
        (call $packed (local.get $l))))
    (func (export "frame-read") (param $h i64) (param $o i64) (param $l i64) (result i32)
      (local $d i32) (local $i i64) (local $c i64) (local $mark i32)
      (call $settle)
      (if (i32.or (i64.eqz (local.get $l)) (i64.gt_u (local.get $l) (i64.const 0x7fffffff)))
        (then (return (call $refused (local.get $h) (local.get $o) (local.get $l)))))
      (if (i64.le_u (local.get $l) (i64.const {PIECE}))
        (then (local.set $d (i32.const {_WRITES})))
        (else
          ;; a handle or range that is refused is told before anything is allocated
          (if (i32.eqz (call $pulled (local.get $h) (i64.add (local.get $o)
                (i64.sub (local.get $l) (i64.const 1))) (i64.const 1)))
            (then (return (call $refused (local.get $h) (local.get $o) (local.get $l)))))
          (local.set $d (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
            (i32.wrap_i64 (local.get $l))))))
      (local.set $mark (i32.add (global.get $top) (i32.const {SLACK})))
      (loop $next
        (global.set $top (local.get $mark))
        (local.set $c (i64.sub (local.get $l) (local.get $i)))
        (if (i64.gt_u (local.get $c) (i64.const {PIECE}))
          (then (local.set $c (i64.const {PIECE}))))
        (if (i32.eqz (call $pulled (local.get $h)
              (i64.add (local.get $o) (local.get $i)) (local.get $c)))
          (then (return (call $refused (local.get $h) (local.get $o) (local.get $l)))))
        (call $unpack (i32.load (i32.const {_SCRATCH})) (i32.wrap_i64 (local.get $c))
          (i32.add (local.get $d) (i32.wrap_i64 (local.get $i))))
        (local.set $i (i64.add (local.get $i) (local.get $c)))
        (br_if $next (i64.lt_u (local.get $i) (local.get $l))))
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i32.store (i32.const {_RET + 8}) (local.get $d))
      (i32.store (i32.const {_RET + 12}) (i32.wrap_i64 (local.get $l)))
      (i32.const {_RET}))"""

_OPTIONS = f"""
    (func $error (result i32) (call $take-error (i32.const {_RET})) (i32.const {_RET}))
    (func (export "next-batch") (result i32) (local $r i64)
      (local.set $r (call $next))
      (if (i64.eq (local.get $r) (i64.const -2)) (then (return (call $error))))
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i32.store8 (i32.const {_RET + 8}) (i64.ge_s (local.get $r) (i64.const 0)))
      (i64.store (i32.const {_RET + 16}) (local.get $r)) (i32.const {_RET}))
    ;; 'X': an error; '0': none; '1': the value follows
    (func (export "state-get") (param $s i32) (param $p i32) (param $l i32) (result i32)
      (local $t i32)
      (call $sget (local.get $s) (local.get $p) (local.get $l) (i32.const {_SCRATCH}))
      (local.set $t (i32.load8_u (i32.load (i32.const {_SCRATCH}))))
      (if (i32.eq (local.get $t) (i32.const 88)) (then (return (call $error))))
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i32.store8 (i32.const {_RET + 8}) (i32.eq (local.get $t) (i32.const 49)))
      (i32.store (i32.const {_RET + 12})
        (i32.add (i32.load (i32.const {_SCRATCH})) (i32.const 1)))
      (i32.store (i32.const {_RET + 16})
        (i32.sub (i32.load (i32.const {_SCRATCH + 4})) (i32.const 1)))
      (i32.const {_RET}))"""

_SOCKETS = f"""
    (global $spinner (mut i64) (i64.const 0)) (global $spins (mut i32) (i32.const 0))
    (func $would_block (param $case i32) (result i32)
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i32.store8 (i32.const {_RET + 8}) (local.get $case)) (i32.const {_RET}))
    ;; A current-thread tokio polls a self-woken task 61 times before its root future, so every
    ;; round trip costs about 61 would-blocks: once the host saw that, most are answered here.
    ;; 'X': an error; '0': data follows; '1': eof; '2': would-block; '3': would-block, a spinner
    (func (export "socket-read") (param $h i64) (param $l i64) (result i32)
      (local $p i32) (local $t i32) (local $n i32) (local $d i32)
      (if (i32.and (i32.gt_u (global.get $spins) (i32.const 0))
                   (i64.eq (local.get $h) (global.get $spinner))) (then
        (global.set $spins (i32.sub (global.get $spins) (i32.const 1)))
        (return (call $would_block (i32.const 2)))))
      (global.set $spins (i32.const 0))
      (call $sread (local.get $h) (local.get $l) (i32.const {_SCRATCH}))
      (local.set $p (i32.load (i32.const {_SCRATCH})))
      (local.set $t (i32.load8_u (local.get $p)))
      (if (i32.eq (local.get $t) (i32.const 88)) (then (return (call $error))))
      (if (i32.eq (local.get $t) (i32.const 51)) (then
        (global.set $spinner (local.get $h)) (global.set $spins (i32.const {ABSORBED}))
        (return (call $would_block (i32.const 2)))))
      (local.set $n (i32.sub (i32.load (i32.const {_SCRATCH + 4})) (i32.const 1)))
      (local.set $n (i32.add (i32.mul (i32.shr_u (local.get $n) (i32.const 3)) (i32.const 7))
        (select (i32.sub (i32.and (local.get $n) (i32.const 7)) (i32.const 1)) (i32.const 0)
          (i32.and (local.get $n) (i32.const 7)))))
      (local.set $d (call $realloc (i32.const 0) (i32.const 0) (i32.const 8) (local.get $n)))
      (call $unpack (i32.add (local.get $p) (i32.const 1)) (local.get $n) (local.get $d))
      (i32.store8 (i32.const {_RET}) (i32.const 0))
      (i32.store8 (i32.const {_RET + 8}) (i32.sub (local.get $t) (i32.const 48)))
      (i32.store (i32.const {_RET + 12}) (local.get $d))
      (i32.store (i32.const {_RET + 16}) (local.get $n))
      (i32.const {_RET}))
    ;; Rust guests offer their whole pending buffer with every call, and all of it is copied into
    ;; this memory each time: so as much is taken as the socket accepts. What stopped it after some
    ;; bytes went out is told by the next call.
    (func (export "socket-write") (param $h i64) (param $p i32) (param $l i32) (result i32)
      (local $r i64) (local $c i32) (local $t i32)
      (global.set $spins (i32.const 0))
      (block $stop (loop $more
        (local.set $c (i32.sub (local.get $l) (local.get $t)))
        (if (i32.gt_u (local.get $c) (i32.const {PIECE})) (then
          (local.set $c (i32.const {PIECE}))))
        (local.set $r (call $swrite (local.get $h) (i32.const {_TEXT})
          (call $pack (i32.add (local.get $p) (local.get $t)) (local.get $c)
            (i32.const {_TEXT}))))
        (br_if $stop (i64.le_s (local.get $r) (i64.const 0)))
        (local.set $t (i32.add (local.get $t) (i32.wrap_i64 (local.get $r))))
        (br_if $more (i32.lt_u (local.get $t) (local.get $l)))))
      (if (i32.eqz (local.get $t)) (then
        (if (i64.eq (local.get $r) (i64.const -2)) (then (return (call $error))))
        (if (i64.eq (local.get $r) (i64.const -1)) (then
          (return (call $would_block (i32.const 1)))))))
      (i32.store8 (i32.const {_RET}) (i32.const 0)) (i32.store8 (i32.const {_RET + 8})
        (i32.const 0))
      (i64.store (i32.const {_RET + 16}) (i64.extend_i32_u (local.get $t))) (i32.const {_RET}))"""

_MAIN = f"""
  (core module $main
    (import "e" "memory" (memory 1))
    (import "e" "top" (global $top (mut i32)))
    (import "e" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
    (import "h" "frame-write" (func $frame-write (param i64 i32 i32 i32)))
    (import "h" "frame-read" (func $frame-read (param i64 i64 i64 i32)))
    (import "h" "frame-drop" (func $frame-drop (param i64)))
    (import "f" "push" (func $push (param i64 i32 i32) (result i64)))
    (import "f" "pull" (func $pull (param i64 i64 i64 i32)))
    (import "f" "sread" (func $sread (param i64 i64 i32)))
    (import "f" "swrite" (func $swrite (param i64 i32 i32) (result i64)))
    (import "f" "next" (func $next (result i64)))
    (import "f" "sget" (func $sget (param i32 i32 i32 i32)))
    (import "f" "take-error" (func $take-error (param i32)))
    (import "f" "fnew" (func $fnew (param i64) (result i64)))
    (import "f" "fseal" (func $fseal (param i64) (result i64)))
    (import "f" "flen" (func $flen (param i64) (result i64)))
    (import "f" "femit" (func $femit (param i64) (result i64)))
    (import "f" "finish" (func $finish (param i64 i32 i32) (result i64)))
    {PACK}{UNPACK}{_FRAMES}{_OPTIONS}{_SOCKETS}
  )"""


_OPTIONS_OF = "(memory $memory) (realloc $realloc) string-encoding=utf8"


def _lowered(name: str) -> str:
    return (
        f'  (alias export $fast "{name}" (func $i-{name}))'
        f" (core func $l-{name} (canon lower (func $i-{name}) {_OPTIONS_OF}))"
    )


def _lifted(name: str) -> str:
    reset = "$reset0" if name == "frame-drop" else "$reset"
    return (
        f'  (alias core export $main "{name}" (core func $m-{name}))'
        f" (func $x-{name} (type $t-{name}) (canon lift (core func $m-{name}) {_OPTIONS_OF}"
        f' (post-return {reset}))) (export "{name}" (func $x-{name}))'
    )


def _bag(kind: str, names: tuple[str, ...]) -> str:
    exports = " ".join(f'(export "{n}" (func $l-{n}))' for n in names)
    return f"  (core instance ${kind} {exports})"


def adapter_text() -> str:
    """The component, to be compiled by wasmtime; it is valid only where it is nested."""
    shared = ("connector-error", "socket-read-result", "socket-write-result")
    lines = [
        "(component",
        f'  (import "{FAST}" (instance $fast {FAST_TYPE}))',
        *(f'  (alias export $fast "{t}" (type ${t}))' for t in shared),
        _MEMORY,
        "  (core instance $mem (instantiate $mem))",
        '  (alias core export $mem "memory" (core memory $memory))',
        *(
            f'  (alias core export $mem "{f}" (core func ${f}))'
            for f in ("realloc", "reset", "reset0")
        ),
        *map(_lowered, (*_SLOW, *_FAST)),
        _bag("h", _SLOW),
        _bag("f", _FAST),
        _MAIN,
        '  (core instance $main (instantiate $main (with "e" (instance $mem))'
        ' (with "h" (instance $h)) (with "f" (instance $f))))',
        EXPORT_TYPES,
        *map(_lifted, _LIFTED),
        *(
            f'  (alias export $fast "{n}" (func $p-{n})) (export "{n}" (func $p-{n}))'
            for n in PASSED_ON
        ),
        ")",
    ]
    return "\n".join(lines)

"""Wrapping: what it takes, what it refuses, and that damaged binaries are refused, never worse."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import rapidbyte_guests
from wasmtime import wat2wasm
from wasmtime.component import Component

from penstock.protocols.rapidbyte.declared.manifest import read_manifest
from penstock.protocols.rapidbyte.fastpath.wrap import OUT_OF_MEMORY, Unsupported, wrap
from penstock.protocols.rapidbyte.guest.session import ComponentSession, load
from penstock.protocols.rapidbyte.wire.wit import FAST, HOST
from penstock.runtimes.wasm.clock import clocked
from penstock.runtimes.wasm.compile_cache import CompileCache
from penstock.runtimes.wasm.contract import Trap, TrapKind


def binary(text: str) -> bytes:
    return bytes(wat2wasm(text))


def test_the_guest_lies_in_it_unchanged_and_its_exports_are_the_same():
    guest = rapidbyte_guests.c_guest("source")
    outer = wrap(guest)
    assert guest in outer
    assert OUT_OF_MEMORY.encode() in outer, "adapter.wat and the name that a trap is known by"
    engine = clocked().engine
    exports = Component(engine, outer).type.exports(engine)
    assert set(exports) == {"rapidbyte:connector/source@4.0.0"}


@pytest.mark.parametrize(
    "text, says",
    [
        ("(module)", "not a component"),
        ("(component)", "does not import"),
        ('(component (import "a:b/c" (func)))', "not an instance"),
        (f'(component (import "{HOST}" (instance)) (core module) (import "a:b/c" (instance)))',
         "after its first definition"),
        (f'(component (import "{HOST}" (instance)) (import "{FAST}" (instance)))', "it imports"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_refused_with_its_reason(text: str, says: str):
    with pytest.raises(Unsupported) as caught:
        wrap(binary(text))
    assert says in str(caught.value)


def test_what_cannot_be_wrapped_runs_plain_and_says_why(cache: CompileCache):
    """A host import of another shape: it can be nested, but not compiled with the adapter."""
    text = f'(component (import "{HOST}" (instance (export "log" (func (param "x" u8))))))'
    loaded = load(binary(text), "source", cache)
    assert loaded.plain is not None
    with pytest.raises(Trap) as caught:
        load(b"rubbish", "source", cache)
    assert caught.value.kind is TrapKind.refused


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_binaries_are_refused_or_taken_never_worse(damage: str):
    guest = rapidbyte_guests.c_guest("destination")
    rng = random.Random(damage)
    for _ in range(400):
        data = bytearray(guest)
        if damage == "cut":
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randrange(1, 8)):
                data[rng.randrange(8, 3000)] ^= 1 << rng.randrange(8)
        with contextlib.suppress(Unsupported):
            wrap(bytes(data))
        read_manifest(bytes(data))


def test_a_guest_cannot_reach_the_fast_functions_itself(stage: Callable[..., Any]):
    """They are given to wrapped guests' adapters only; a plain guest that asks is not started."""
    text = f'(component (import "{FAST}" (instance (export "push" (func)))))'
    loaded = load(binary(text), "source", CompileCache(None))
    assert loaded.plain is not None
    made = stage("source", {})
    with pytest.raises(Trap):
        ComponentSession(loaded, made.host(""))

"""A guest cannot go past its host to the network (protocol, section 8: "Direct WASI network usage
is disabled"). The component is written by hand: no toolchain at hand makes one that tries."""

import pytest

from penstock.runtimes.wasm.compile_cache import CompileCache
from penstock.runtimes.wasm.instance import Instance

CODES = (
    "unknown", "access-denied", "not-supported", "invalid-argument", "out-of-memory", "timeout",
    "concurrency-conflict", "not-in-progress", "would-block", "invalid-state", "new-socket-limit",
    "address-not-bindable", "address-in-use", "remote-unreachable", "connection-refused",
    "connection-reset", "connection-aborted", "datagram-too-large", "name-unresolvable",
    "temporary-resolver-failure", "permanent-resolver-failure",
)  # fmt: skip
CODE_LIST = " ".join(f'"{c}"' for c in CODES)


def component(kind: str) -> bytes:
    """Its one function gives 100 * (it was refused) + the error's number."""
    return f"""(component
  (import "wasi:sockets/network@0.2.0" (instance $net
    (type $c0 (enum {CODE_LIST})) (export "error-code" (type $c (eq $c0)))
    (type $f0 (enum "ipv4" "ipv6")) (export "ip-address-family" (type $f (eq $f0)))))
  (alias export $net "error-code" (type $code))
  (alias export $net "ip-address-family" (type $family))
  (import "wasi:sockets/{kind}@0.2.0" (instance $of
    (export "{kind}-socket" (type (sub resource)))))
  (alias export $of "{kind}-socket" (type $socket))
  (import "wasi:sockets/{kind}-create-socket@0.2.0" (instance $create
    (alias outer 1 $code (type $c0)) (export "error-code" (type $c (eq $c0)))
    (alias outer 1 $family (type $f0)) (export "ip-address-family" (type $f (eq $f0)))
    (alias outer 1 $socket (type $s0)) (export "{kind}-socket" (type $s (eq $s0)))
    (type $own (own $s)) (type $r (result $own (error $c)))
    (export "create-{kind}-socket" (func (param "address-family" $f) (result $r)))))
  (core module $mem (memory (export "memory") 1))
  (core instance $mem (instantiate $mem))
  (alias core export $mem "memory" (core memory $memory))
  (core func $lowered
    (canon lower (func $create "create-{kind}-socket") (memory $memory)))
  (core module $m
    (import "i" "create" (func $create (param i32 i32)))
    (import "i" "memory" (memory 1))
    (func (export "try") (result i32)
      (call $create (i32.const 0) (i32.const 16))
      (i32.add (i32.mul (i32.load8_u (i32.const 16)) (i32.const 100))
        (i32.load8_u (i32.const 20)))))
  (core instance $i (export "create" (func $lowered)) (export "memory" (memory $memory)))
  (core instance $main (instantiate $m (with "i" (instance $i))))
  (func $try (result u32) (canon lift (core func $main "try")))
  (instance $guest (export "try" (func $try)))
  (export "t:t/guest" (instance $guest)))""".encode()


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_socket_of_its_own_is_denied(kind: str):
    instance = Instance(CompileCache(None).component(component(kind)), {})
    refused, code = divmod(instance.call("t:t/guest", "try"), 100)
    assert refused == 1
    assert CODES[code] == "access-denied"
    instance.close()

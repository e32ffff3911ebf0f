"""What is known of a guest beside what it tells: why it failed, why its code is not kept compiled.

Not here: failures as errors of the tree (``failures``). Neighbours: ``asking``, ``running``.
"""

from penstock.protocols.rapidbyte.host import Host
from penstock.protocols.rapidbyte.messages import Fault
from penstock.runtimes.wasm.compiled import take_problems
from penstock.runtimes.wasm.contract import Trap, TrapKind
from penstock.runtimes.wasm.instance import MEMORY_SIGNS


def judged(error: Exception, host: Host) -> Exception:
    """A crash of a guest whose last words were that it has no more memory is of that kind."""
    if not isinstance(error, Trap) or error.kind is not TrapKind.crashed:
        return error
    if not any(sign in host.last_line for sign in MEMORY_SIGNS):
        return error
    message = "it ran out of memory"
    return Trap(TrapKind.memory, message, detail=error.detail, stderr=error.stderr)


def tell_problems(host: Host) -> None:
    for text in take_problems():
        host.say("WARN", text)


def first_fault(host: Host) -> Fault | None:
    return host.first_fault.fault if host.first_fault is not None else None

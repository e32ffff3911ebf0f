"""What a process that a Spark task spawned has in common: its job on stdin, its owner's death.

Neighbours: ``engine.channel.child_process`` spawns, writes the job and reads the answer;
``engine.worker.lane`` and ``engine.worker.feeder`` run one.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from penstock.engine.channel.child_process import CLAIMED
from penstock.engine.specs.lane import KeysAt
from penstock.errors import PenstockError
from penstock.state.keys import OpenKeys

J = TypeVar("J")

ORPHAN_SECONDS = 30.0  # for the connector to end and what may be kept to be written


def carry_out(
    kind: type[J],
    run: Callable[[J, threading.Event], msgspec.Struct],
    failed: Callable[[dict[str, Any]], msgspec.Struct],
) -> NoReturn:
    """Read a job, run it, write its answer, end. Errors of ours become part of the answer, except a
    lost claim (``engine.channel.child_process.CLAIMED``)."""
    job = read_job(kind)
    tune()
    try:
        answer = run(job, watch_owner())
    except PenstockError as e:
        if e.code == "log.claimed":
            os._exit(CLAIMED)
        answer = failed(e.as_dict())
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.flush()
    os._exit(0)  # no thread of a library may hold up the end


def ports(at: KeysAt, task: str) -> OpenKeys:
    """Opens ports to the keys of a component."""
    from penstock.state.task_keys import open_keys

    return lambda: open_keys(at.url, at.pipeline, task, dry=at.dry)


def read_job(kind: type[J]) -> J:
    """One job as JSON, after its length as msgpack. Ends this process where stdin ends first."""
    head = b""
    size: int | None = None
    while size is None:
        head += _some(1)
        try:
            size = msgspec.msgpack.decode(head, type=int)
        except msgspec.DecodeError:
            continue
    body = bytearray()
    while len(body) < size:
        body += _some(size - len(body))
    return msgspec.json.decode(bytes(body), type=kind)


def _some(size: int) -> bytes:
    block = os.read(0, size)
    if not block:
        raise SystemExit(1)
    return block


def watch_owner() -> threading.Event:
    """Set once stdin ends, for whoever started us is gone then; a process that does not stop by
    itself is ended soon after."""
    orphaned = threading.Event()
    threading.Thread(target=_watch, args=(orphaned,), daemon=True).start()
    return orphaned


def _watch(orphaned: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    orphaned.set()
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def tune() -> None:
    """Two threads share the interpreter: short turns, or each return from native code waits for
    5 ms. What is loaded at the start is no garbage, and records make none that has cycles."""
    sys.setswitchinterval(0.0005)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)

"""Runs the main function of a worker process: reads its job from stdin, writes its answer to
stdout, ends when its owner dies (L11).

Neighbours: ``tasks.child_process`` spawns the process, writes the job and reads the
answer; ``engine.worker.lane`` and ``engine.worker.feeder`` call :func:`carry_out`.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec

from penstock.errors import Defect, PenstockError, not_ours
from penstock.tasks.child_process import CLAIMED

J = TypeVar("J")

ORPHAN_SECONDS = 30.0  # for the connector to end and covered rows to be sealed


def carry_out(
    kind: type[J],
    run: Callable[[J, threading.Event], msgspec.Struct],
    failed: Callable[[dict[str, Any]], msgspec.Struct],
) -> NoReturn:
    """Reads a job of type ``kind``, runs it, writes its answer, and ends this process. ``failed``
    makes an answer from a ``PenstockError`` (``as_dict``); a lost claim gives the exit code
    :data:`tasks.child_process.CLAIMED` instead. An uncaught exception in a thread fails the job
    too."""
    job = read_job(kind)
    tune()
    broken = watch_threads()
    try:
        answer = run(job, watch_owner())
        if broken:
            raise broken[0]
    except PenstockError as e:
        if e.code == "log.claimed":
            os._exit(CLAIMED)
        answer = failed(e.as_dict())
    except (OSError, RecursionError) as e:
        fault = not_ours(e)
        if fault is None:
            raise
        answer = failed(fault.as_dict())
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.flush()
    os._exit(0)  # does not wait for threads of libraries


def read_job(kind: type[J]) -> J:
    """Reads one job from stdin: the length as msgpack, then JSON. Ends this process where stdin
    ends first."""
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


def watch_threads() -> list[PenstockError]:
    """Returns a list that gets an error for each exception that ends a thread from now on."""
    broken: list[PenstockError] = []
    before = threading.excepthook

    def note(ended: threading.ExceptHookArgs) -> None:
        before(ended)
        error, name = ended.exc_value, ended.thread.name if ended.thread else "?"
        if isinstance(error, PenstockError):
            broken.append(error)
        elif error is not None:
            fault = not_ours(error)
            broken.append(
                fault or Defect(f"the thread {name} broke: {error!r}", code="lane.thread")
            )

    threading.excepthook = note
    return broken


def watch_owner() -> threading.Event:
    """Returns an event that is set when stdin ends, which means that the process's owner is gone. A
    process that does not stop by itself is ended :data:`ORPHAN_SECONDS` later."""
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
    """Tunes the interpreter for two busy threads: short turns, since each return from native code
    would wait for 5 ms otherwise; modules are frozen out of garbage collection, which runs rarely,
    since decoding records creates no cycles."""
    sys.setswitchinterval(0.0001)
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 20)

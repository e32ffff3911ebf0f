"""Frames through WebAssembly guests, in MB/s: source, destination, transform, at several sizes.

    python bench/wasm_frames.py [--mb MB_PER_CASE] [--runs N] [--chain MB] [--checked] [--json]

In the same run, for the same frames: a plain memcpy, and wasmtime's stock interface (without the
adapter; a little data suffices there, in pieces of 64 KB, because it refuses larger ones). The
guests are the tests' C ones; they move bytes and compute nothing. A transform moves each byte
twice; its figure is what goes in. On a machine that others use, MB per CPU second says more than
the wall does. ``--chain`` instead: that much in frames of 1 MB through source, transform and
destination at once, in one process, with the peak of its memory. ``--checked`` instead: what the
check of a frame of about 1 MB costs by the type of its columns (``decode_frame``), which a lane
does for each frame beside the guest's work.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.protocols.rapidbyte.declared.permissions import EffectivePermissions
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import Frame, RunEnded, StageEvent
from penstock.protocols.rapidbyte.guest.session import CompiledConnector, load
from penstock.protocols.rapidbyte.guest.stage import QueueBounds, Stage
from penstock.protocols.rapidbyte.wire.arrow_ipc import frame_of
from penstock.protocols.rapidbyte.wire.frame_check import decode_frame
from penstock.protocols.rapidbyte.wire.messages import StreamContext, StreamLimits
from penstock.runtimes.wasm.compile_cache import CompileCache

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "protocols" / "rapidbyte"))
from rapidbyte_guests import c_guest

SIZES = {"64 KB": 64 << 10, "1 MB": 1 << 20, "16 MB": 16 << 20}
STOCK_BYTES = 2 << 20
STOCK_PIECE = 64 << 10
ALLOWED = EffectivePermissions(
    hosts=(), variables=(), folders=(), max_memory=None, timeout_seconds=600, rulings=()
)
CONTEXT = StreamContext(
    stream_name="numbers",
    sync_mode="full_refresh",
    limits=StreamLimits(max_batch_bytes=64 << 20),
)


def feed(size: int, frames: int) -> Iterator[bytes]:
    data = os.urandom(size)
    for _ in range(frames):
        yield data


def timed(told: Iterator[StageEvent], expected: int | None) -> tuple[float, float]:
    """Seconds on the wall and of CPU (all threads), compiling not included."""
    began, used = time.perf_counter(), time.process_time()
    seen = 0
    for item in told:
        if isinstance(item, Frame):
            seen += len(item.data)
        elif isinstance(item, RunEnded) and item.error is not None:
            raise item.error
    if expected is not None and seen != expected:
        raise SystemExit(f"{seen} bytes instead of {expected}")
    return time.perf_counter() - began, time.process_time() - used


def run(loaded: CompiledConnector, size: int, frames: int, piece: int) -> tuple[float, float]:
    """MB/s on the wall, MB per CPU second."""
    config: dict[str, Any] = {"light": 1, "same": 1, "frames": frames, "size": size, "chunk": piece}
    stage = Stage(loaded, config, ALLOWED, loaded.role)
    total = size * frames
    if loaded.role == "source":
        times = timed(stream_run.read(stage, CONTEXT), total)
    elif loaded.role == "destination":
        times = timed(stream_run.write(stage, CONTEXT, feed(size, frames)), None)
    else:
        times = timed(stream_run.apply(stage, CONTEXT, feed(size, frames)), total)
    return total / times[0] / 1e6, total / times[1] / 1e6


def frames_of(told: Iterator[StageEvent]) -> Iterator[bytes | bytearray | memoryview]:
    for item in told:
        if isinstance(item, Frame):
            yield item.data
        elif isinstance(item, RunEnded) and item.error is not None:
            raise item.error


def chain(cache: CompileCache, megabytes: int) -> dict[str, Any]:
    size = 1 << 20

    def stage(role: Any) -> Stage:
        config = {"light": 1, "same": 1, "frames": megabytes, "size": size}
        pressure = QueueBounds(inbox_bytes=8 << 20, outbox_bytes=8 << 20)
        return Stage(load(c_guest(role), role, cache), config, ALLOWED, role, pressure=pressure)

    first, second, third = stage("source"), stage("transform"), stage("destination")
    read = frames_of(stream_run.read(first, CONTEXT))
    through = frames_of(stream_run.apply(second, CONTEXT, read))
    seconds, cpu = timed(stream_run.write(third, CONTEXT, through), None)
    return {
        "chained MB": megabytes,
        "MB/s": round(megabytes * size / seconds / 1e6),
        "MB/CPU s": round(megabytes * size / cpu / 1e6),
    }


def checked(options: argparse.Namespace) -> list[dict[str, Any]]:
    few, many = 13_000, 80_000
    texts = [f"name {i}" for i in range(many)]
    columns: dict[str, dict[str, Any]] = {
        "integers": {"a": pa.array(range(120_000), pa.int64())},
        "short text": {"a": pa.array(texts)},
        "text beyond ASCII": {"a": pa.array(["zażółć gęślą"] * 50_000)},
        "dictionary": {"a": pa.array([f"v{i % 100}" for i in range(250_000)]).dictionary_encode()},
        "nested": {"a": pa.array([{"p": i, "q": ["a", "b"]} for i in range(40_000)])},
        "seven types": {
            "id": pa.array(range(few), pa.int64()), "name": pa.array(texts[:few]),
            "amount": pa.array([0.5] * few), "ok": pa.array([True] * few),
            "at": pa.array(range(few), pa.timestamp("us")), "day": pa.array([1] * few, pa.date32()),
            "raw": pa.array([b"abcdefgh" * 5] * few),
        },
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for label, given in columns.items():
        frame = frame_of(pa.RecordBatch.from_pydict(given))
        times = max(2, (options.mb << 20) // len(frame))
        used = time.process_time()
        for _ in range(times):
            decode_frame(frame)
        rate = times * len(frame) / (time.process_time() - used) / 1e6
        rows.append({"checked": label, "frame": len(frame), "MB/CPU s": round(rate)})
    return rows


def memcpy(size: int, frames: int) -> float:
    data, into = os.urandom(size), bytearray(size)
    began = time.perf_counter()
    for _ in range(frames):
        into[:] = data
    return size * frames / (time.perf_counter() - began) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--chain", type=int, default=0)
    parser.add_argument("--checked", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cache = CompileCache(None)
    if options.checked:
        rows = checked(options)
    else:
        rows = [chain(cache, options.chain)] if options.chain else cases(cache, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if options.json:
        print(json.dumps({"rows": rows, "peak_rss_mb": peak}))
        return
    for row in rows:
        print(row)
    print(f"peak memory {peak} MB")


def cases(cache: CompileCache, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for role in ("source", "destination", "transform"):
        wrapped = load(c_guest(role), role, cache)
        stock = load(c_guest(role), role, cache, plain=True)
        for label, size in SIZES.items():
            frames = max(2, (options.mb << 20) // size)
            fast = [run(wrapped, size, frames, 0) for _ in range(options.runs)]
            copies = [memcpy(size, frames) for _ in range(options.runs)]
            few = max(1, STOCK_BYTES // size)
            slow, slow_cpu = run(stock, min(size, STOCK_BYTES), few, STOCK_PIECE)
            rate, copy = statistics.median(f for f, _ in fast), statistics.median(copies)
            per_cpu = statistics.median(c for _, c in fast)
            rows.append(
                {
                    "role": role,
                    "frame": label,
                    "MB/s": round(rate),
                    "all runs": [round(f) for f, _ in fast],
                    "MB/CPU s": round(per_cpu),
                    "memcpy MB/s": round(copy),
                    "of memcpy": round(rate / copy, 3),
                    "stock MB/s": round(slow, 2),
                    "times stock": round(rate / slow),
                    "times stock by CPU": round(per_cpu / slow_cpu),
                }
            )
    return rows


if __name__ == "__main__":
    main()

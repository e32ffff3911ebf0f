"""One message file, read from a connector that is a process and from one that is a container.

    python bench/containers.py [--megabytes 500] [--rounds 3]

The connector copies the file to its stdout (``tests/stubs/stub_source.py``, scenario ``file``), so
that what is measured is the way from there, from the first byte to the last; ``start`` is the time
until the first. ``bytes`` takes blocks and throws them away, ``records`` reads them as the protocol
does. ``pipes``: the container opens named pipes; ``engine``: the engine carries its stdout. Needs
root and Docker's daemon, or PENSTOCK_TEST_ENGINE.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS / "e2e"))


def message_file(path: Path, size: int) -> None:
    line = (
        '{{"type":"RECORD","record":{{"stream":"s0","emitted_at":1700000000000,"data":{{"id":{0},'
        '"seq":{0},"name":"name {0}","amount":{0}.5,"active":true,"note":"{1}"}}}}}}\n'
    )
    block = "".join(line.format(i, "x" * 80) for i in range(20_000)).encode()
    with open(path, "wb") as out:
        while out.tell() < size:
            out.write(block)


def blocks(runtime: Any, arguments: list[Any]) -> Iterator[int]:
    from penstock.runtimes.contract import RunTimeouts

    with runtime.open(arguments, RunTimeouts()) as channel:
        while data := channel.read(60):
            yield len(data)


def records(runtime: Any, config: dict[str, Any]) -> Iterator[int]:
    from penstock.model.catalog import Stream, StreamId, SyncMode
    from penstock.model.events import Batch
    from penstock.protocols.airbyte.package import PACKAGE
    from penstock.protocols.reading import ReadRequest, StreamOverrides

    stream = Stream(id=StreamId(None, "s0"), json_schema={}, sync_modes=(SyncMode.full_refresh,))
    configured = PACKAGE.source.configure(stream, StreamOverrides())
    request = ReadRequest(config=config, streams=(configured,))
    events = PACKAGE.source.read(runtime, request)
    return (len(event.bodies) for event in events if isinstance(event, Batch))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()

    from container_images import engine_with_images

    from penstock.config.sections import FilesystemPermissions, Permissions
    from penstock.runtimes.container.engine import find_engine
    from penstock.runtimes.container.image import known_image
    from penstock.runtimes.container.runtime import ContainerRuntime
    from penstock.runtimes.contract import PrivateFile, Start
    from penstock.runtimes.masking import Masker
    from penstock.runtimes.process import ProcessRuntime

    with tempfile.TemporaryDirectory() as folder, engine_with_images():
        file = Path(folder) / "messages.jsonl"
        message_file(file, asked.megabytes * 1_000_000)
        size = file.stat().st_size
        config = {"scenario": "file", "file": str(file)}
        image = known_image(find_engine(), "test/stub-source:1")
        seen = Permissions(fs=FilesystemPermissions(allowed_preopens=(f"{folder}:ro",)))

        def container(**changes: Any) -> Any:
            changed = msgspec.structs.replace(image, **changes)
            return ContainerRuntime.of(Start(image=changed, permissions=seen), changed, Masker())

        process = ProcessRuntime([sys.executable, str(TESTS / "stubs" / "stub_source.py")])
        runtimes = {
            "process": process,
            "container, pipes": container(),
            "container, engine": container(shell=False),
        }
        arguments = [
            "read",
            "--config",
            PrivateFile("config.json", msgspec.json.encode(config)),
            "--catalog",
            PrivateFile("catalog.json", b'{"streams":[]}'),
        ]
        ways: dict[str, Callable[[Any], Iterator[int]]] = {
            "bytes": lambda runtime: blocks(runtime, arguments),
            "records": lambda runtime: records(runtime, config),
        }
        for what, way in ways.items():
            speeds: dict[str, list[float]] = {name: [] for name in runtimes}
            starts: dict[str, list[float]] = {name: [] for name in runtimes}
            for _ in range(asked.rounds):  # in turn: the machine's load changes
                for name, runtime in runtimes.items():
                    asked_at = time.monotonic()
                    taken = way(runtime)
                    assert next(taken)
                    began = time.monotonic()
                    assert sum(taken)
                    speeds[name].append(size / 1e6 / (time.monotonic() - began))
                    starts[name].append(began - asked_at)
            base = statistics.median(speeds["process"])
            for name, found in speeds.items():
                speed, start = statistics.median(found), statistics.median(starts[name])
                ratio = f"ratio {speed / base:.2f}"
                print(f"{what:8} {name:18} {speed:6.0f} MB/s  {ratio}  start {start:.2f} s")


if __name__ == "__main__":
    main()

"""Pipelines whose source is a WebAssembly component: the guest that does what its script says, with
whatever manifest a test gives it (``tests/stubs/rapidbyte/script.c``), or an example.

A script is a list of commands for each stream; what they need (frames, JSON) goes into the
configuration in hexadecimal.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pipelines import NAME, Ran, Site

from penstock.errors import ConfigError, PenstockError
from penstock.protocols import load as load_protocol

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "tests" / "protocols" / "rapidbyte"), str(ROOT / "tests" / "examples")]

import built  # noqa: E402
import rapidbyte_guests  # noqa: E402

from penstock.protocols.rapidbyte.declared.manifest import MANIFEST_SECTION, SCHEMA_SECTION  # noqa: E402
from penstock.protocols.rapidbyte.wire.wasm_binary import encode_name, encode_section  # noqa: E402

MANIFEST: dict[str, Any] = {
    "id": "penstock-tests/script",
    "name": "Script",
    "version": "1.2.3",
    "protocol_version": "4",
    "permissions": {"network": {"allow_runtime_config_domains": True}},
    "roles": {"source": {"supported_sync_modes": ["full_refresh", "incremental"]}},
}
COLUMNS = [("seq", "Int64"), ("name", "Utf8")]
Script = Mapping[str, Sequence[str]]


def share_compiled(home: Path) -> None:
    """Lets this home's compiled code be everybody's."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    built.COMPILED.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "compiled").symlink_to(built.COMPILED)


@cache
def script_guest() -> bytes:
    return rapidbyte_guests.c_guest("source", "script.c")


def numbers_source() -> bytes:
    """The example in C: rows, batch_rows, start."""
    return built.c_source().read_bytes()


def count_destination() -> bytes:
    """The example in C: checkpoint_frames, fail_after, ..."""
    return built.c_destination().read_bytes()


def python_guest() -> bytes:
    """A source that does what its ``mode`` says; ten seconds the first time."""
    return rapidbyte_guests.python_guest()


def component(
    manifest: Mapping[str, Any] | str | None = None, schema: Mapping[str, Any] | None = None
) -> bytes:
    """The scripted guest. ``manifest``: a text is put in as it is; None: it has none."""
    made = script_guest()
    if manifest is not None:
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        made += encode_section(0, encode_name(MANIFEST_SECTION) + text.encode())
    if schema is not None:
        made += encode_section(0, encode_name(SCHEMA_SECTION) + json.dumps(schema).encode())
    return made


def ipc(table: pa.Table) -> bytes:
    """One frame: a complete Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def numbered(first: int, last: int, **more: pa.Array) -> pa.Table:
    """Rows ``seq``, ``name`` and what else is given."""
    seqs = list(range(first, last + 1))
    names = [f"N{n}" for n in seqs]
    return pa.table({"seq": pa.array(seqs, pa.int64()), "name": names, **more})


def checkpoint(stream: str, value: Any, **changes: Any) -> dict[str, Any]:
    """A source's, bare."""
    return {
        "id": 0, "kind": "source", "stream": stream, "cursor_field": "seq",
        "cursor_value": {"type": "utf8", "value": value}, "records_processed": 1,
        "bytes_processed": 1, **changes,
    }  # fmt: skip


class StageEvent:
    """A configuration for the scripted guest, as it is written: ``told.frame(...)`` gives a command
    and remembers its data."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def keep(self, content: bytes | str | Mapping[str, Any]) -> str:
        if isinstance(content, Mapping):
            content = json.dumps(content)
        raw = content.encode() if isinstance(content, str) else content
        key = f"d{len(self.data)}"
        self.data[key] = raw.hex()
        return key

    def frame(self, table: pa.Table) -> str:
        return f"frame {self.keep(ipc(table))}"

    def rows(self, first: int, last: int) -> str:
        return self.frame(numbered(first, last))

    def raw(self, document: str | Mapping[str, Any], kind: int = 0) -> str:
        return f"raw {kind} {self.keep(document)}"

    def dead(self, record: Mapping[str, Any], times: int = 1) -> str:
        return f"dead {self.keep(record)} {times}"

    def log(self, level: int, text: str) -> str:
        return f"log {level} {self.keep(text)}"

    def metric(self, name: str, kind: str, value: float, **labels: str) -> str:
        told = {"name": name, "value": {"type": kind, "value": value}}
        return f"metric {self.keep({**told, 'labels': list(labels.items())})}"

    def bytes(self, content: bytes) -> str:
        return f"frame {self.keep(content)}"

    def config(
        self,
        script: Script,
        columns: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        *,
        cursor: str | None = "seq",
        key: Sequence[str] | None = ("seq",),
        modes: Sequence[str] = ("full_refresh", "incremental"),
        **more: Any,
    ) -> dict[str, Any]:
        """``columns``: of a stream, name and declared type, where they are not ``COLUMNS``."""
        streams: list[dict[str, Any]] = []
        for stream in script:
            declared = (columns or {}).get(stream, COLUMNS)
            stream_told: dict[str, Any] = {
                "name": stream,
                "schema": [{"name": n, "data_type": t, "nullable": True} for n, t in declared],
                "supported_sync_modes": list(modes),
            }
            if cursor:
                stream_told["source_defined_cursor"] = cursor
            if key:
                stream_told["source_defined_primary_key"] = list(key)
            streams.append(stream_told)
        return {
            "catalog": json.dumps({"streams": streams}).encode().hex(),
            **{stream: " ; ".join(commands) for stream, commands in script.items()},
            **self.data,
            **more,
        }


class WasmSite(Site):
    """A pipeline from a component. ``binary``: its content."""

    def __init__(self, folder: Path, format: str = "parquet", *, binary: bytes) -> None:
        super().__init__(folder, format)
        share_compiled(self.home.path)
        self.wasm = folder / "source.wasm"
        self.wasm.write_bytes(binary)

    def connector(self, **stub: Any) -> str:
        assert not stub, "a component has no command line"
        return str(self.wasm)

    def document(
        self, stub: dict[str, Any] | None = None, *, further: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """``further``: keys of the source's section."""
        document = super().document(stub, **parts)
        document["source"] |= further or {}
        return document

    def run_source(self, further: Mapping[str, Any], **parts: Any) -> Ran:
        """A run with further keys in the source's section."""
        return self.run(further=further, **parts)

    def write_source(self, further: Mapping[str, Any], **parts: Any) -> Path:
        return self.write(further=further, **parts)

    def run_or_error(self, **parts: Any) -> dict[str, Any]:
        """The error of a run, whether it was raised or reported."""
        try:
            return self.run(**parts).error
        except PenstockError as e:
            problems = e.problems if isinstance(e, ConfigError) else []
            return {**e.as_dict(), "problems": problems, "exit_code": e.exit_code}

    def described(self) -> dict[str, Any]:
        with self.store() as store:
            return load_protocol("rapidbyte").state.describe(store.states(NAME))

    def cursors(self) -> dict[str, str]:
        """stream -> the cursor's value in the saved state."""
        found: dict[str, str] = {}
        for entry in self.described()["streams"]:
            found[entry["name"]] = str(entry["state"]["cursor_value"]["value"])
        return found

    def log_lines(self, run: str) -> list[dict[str, Any]]:
        """``log.jsonl`` of a run."""
        text = (self.home.run(run) / "log.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@contextmanager
def counting_server(hold: float = 0.0) -> Iterator[tuple[int, list[float]]]:
    """(port, when it was asked). It tells each who asks how often it was asked, from 1; with
    ``hold`` it hangs up without a word after so many seconds."""
    asked: list[float] = []
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.2)
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            try:
                peer, _ = listening.accept()
            except TimeoutError:
                continue
            with peer:
                asked.append(time.monotonic())
                if hold:
                    over.wait(hold)
                else:
                    peer.sendall(bytes([len(asked)]))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield listening.getsockname()[1], asked
    finally:
        over.set()
        thread.join(10)
        listening.close()

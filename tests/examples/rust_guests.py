"""The Rust connectors, built once; a Postgres on loopback; and one run of each or of both.

What was built is kept (``kept_builds``), named by what it was built from. Used by the tests and by
``bench/rust_guests.py``. Not here: how they are built (``examples/rapidbyte/rust/build.py``).
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg

from kept_builds import KEPT, building
from penstock.protocols.rapidbyte.declared.manifest import read_manifest
from penstock.protocols.rapidbyte.declared.permissions import effective
from penstock.protocols.rapidbyte.guest import stream_run
from penstock.protocols.rapidbyte.guest.events import Frame, RunEnded, StageEvent
from penstock.protocols.rapidbyte.guest.session import load
from penstock.protocols.rapidbyte.guest.stage import Stage
from penstock.protocols.rapidbyte.wire.messages import (
    CursorInfo,
    CursorValue,
    StreamContext,
    WriteMode,
)
from penstock.runtimes.wasm.compile_cache import CompileCache

ROOT = Path(__file__).parents[2]
RUST = ROOT / "examples" / "rapidbyte" / "rust"
CACHE = KEPT / "rust-guests"
PASSWORD = "loopback-7f3a"
_ROLES = {"source": "source-postgres", "destination": "dest-postgres"}


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_build = _module("rust_build", RUST / "build.py")
_cluster = _module("postgres_cluster", ROOT / "tests" / "postgres_cluster.py")
CannotBuild: type[Exception] = _build.CannotBuild


# -- components


def rust_guest(role: str, *, quick: bool = True) -> bytes:
    """``source`` or ``destination``. ``quick``: without optimization, built in half the time.
    Raises ``CannotBuild``."""
    kept = CACHE / f"{'quick-' if quick else ''}guests-{_digest()}"
    with building(kept) as missing:
        if missing:
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                made = Path(folder) / "made"
                _build.build(made, CACHE / "target", quick=quick)
                made.rename(kept)
    return (kept / f"{_build.PACKAGES[_ROLES[role]]}.wasm").read_bytes()


def _digest() -> str:
    files = [RUST / "Cargo.toml", RUST / "Cargo.lock", RUST / "build.py"]
    files += sorted((ROOT / "wit").glob("*.wit"))
    for package in ("guest", "source-postgres", "dest-postgres"):
        files += sorted(p for p in (RUST / package).rglob("*") if p.is_file())
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


# -- Postgres


@dataclass(frozen=True)
class Server:
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://penstock:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def config(self, **more: Any) -> dict[str, Any]:
        """Of either connector."""
        known = {
            "host": "127.0.0.1", "port": self.port, "user": "penstock", "password": PASSWORD,
            "database": "postgres",
        }  # fmt: skip
        return {**known, **more}

    def ask(self, query: str) -> Any:
        """The first row, where there is one."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query)  # type: ignore[arg-type]
            return cursor.fetchone() if cursor.description else None


@contextlib.contextmanager
def loopback_postgres(**settings: str) -> Iterator[Server]:
    """A server of our own on 127.0.0.1, which asks for a password (SCRAM)."""
    binaries, user = _cluster.binaries_folder(), _cluster.unprivileged_user()
    folder = tempfile.mkdtemp(prefix="penstock-pg-")
    os.chown(folder, user.pw_uid, user.pw_gid)
    become = {} if os.geteuid() else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    password = Path(folder, "password")
    password.write_text(PASSWORD)
    os.chown(password, user.pw_uid, user.pw_gid)
    data = f"{folder}/data"
    subprocess.run(
        [f"{binaries}/initdb", "-D", data, "-U", "penstock", "-A", "scram-sha-256",
         f"--pwfile={password}", "-E", "UTF8", "--no-sync", "--locale=C"],
        check=True, capture_output=True, cwd=folder, timeout=_cluster.START_SECONDS, **become,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wanted = {
        "listen_addresses": "127.0.0.1", "port": str(port), "unix_socket_directories": "",
        "fsync": "off", "shared_buffers": "128MB", "max_wal_size": "4GB", **settings,
    }  # fmt: skip
    options = [part for k, v in wanted.items() for part in ("-c", f"{k}={v}")]
    command = [f"{binaries}/postgres", "-D", data, *options]
    with open(f"{folder}/log", "wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **become)
    server = Server(port)
    try:
        _await(running, server, Path(folder, "log"))
        yield server
    finally:
        running.send_signal(signal.SIGQUIT)  # without a checkpoint: it is all removed
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _await(running: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    deadline = time.monotonic() + _cluster.START_SECONDS
    while True:
        try:
            server.ask("SELECT 1")
            return
        except psycopg.OperationalError:
            if running.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Postgres did not start:\n{log.read_text()}") from None
            time.sleep(0.05)


# -- runs


def stage(
    role: Any,
    config: dict[str, Any],
    *,
    allow: Any = None,
    limits: Any = None,
    quick: bool = True,
) -> Stage:
    """Under what its own manifest asks for; ``allow``: what the pipeline narrows that to.
    ``quick``: see ``rust_guest``."""
    binary = rust_guest(role, quick=quick)
    found = read_manifest(binary)
    assert found.manifest is not None and found.warnings == (), found
    loaded = load(binary, role, CompileCache(CACHE / "compiled"))
    assert loaded.plain is None, loaded.plain
    return Stage(loaded, config, effective(found, allow, limits, config), role)


def context(
    stream: str,
    *,
    cursor: str | None = None,
    since: str | None = None,
    mode: str = "append",
    keys: list[str] | None = None,
    **more: Any,
) -> StreamContext:
    """``cursor``: incremental by that column, from ``since`` on."""
    info = None
    if cursor is not None:
        info = CursorInfo(cursor_field=cursor)
        if since is not None:
            last = CursorValue(type="utf8", value=since)
            info = CursorInfo(cursor_field=cursor, last_value=last)
    return StreamContext(
        stream_name=stream,
        sync_mode="full_refresh" if cursor is None else "incremental",
        cursor_info=info,
        write_mode=WriteMode(mode=mode, primary_key=keys),  # type: ignore[arg-type]
        **more,
    )


def frames(told: Iterable[StageEvent], seen: list[StageEvent] | None = None) -> Iterator[bytes]:
    """Of a source; ``seen`` gets all else. Raises the source's error."""
    for item in told:
        if isinstance(item, Frame):
            yield item.data  # type: ignore[misc]
            continue
        if seen is not None:
            seen.append(item)
        if isinstance(item, RunEnded) and item.error is not None:
            raise item.error


def pump(
    read: Stage, write: Stage, reading: StreamContext, writing: StreamContext | None = None
) -> tuple[list[StageEvent], list[StageEvent]]:
    """Source into destination, a thread each. What each told beside the frames."""
    said: list[StageEvent] = []
    feed = frames(stream_run.read(read, reading), said)
    return said, list(stream_run.write(write, writing or reading, feed))


def ended(told: list[StageEvent]) -> RunEnded:
    last = told[-1]
    assert isinstance(last, RunEnded)
    return last


# -- rows

_COLUMNS = (
    "id bigint PRIMARY KEY, flag boolean, small integer, ratio double precision, label text, "
    "at timestamp, born date, blob bytea"
)
_ROWS = """
    SELECT i, i % 3 = 0, (i * 7919 % 1000003)::int, i / 7.0::float8,
           CASE WHEN i % 11 = 0 THEN NULL ELSE 'row ' || i || ' ' || repeat('é', (i % 24)::int) END,
           timestamp '2001-01-01' + i * interval '1.000001 s', date '1969-01-01' + (i % 20000)::int,
           decode(md5(i::text) || md5((-i)::text), 'hex')
    FROM generate_series({first}::bigint, {last}::bigint) AS i"""


def make_rows(server: Server, table: str, first: int, last: int) -> None:
    """Eight columns of seven kinds beside the key; about 130 bytes a row."""
    server.ask(f"CREATE TABLE IF NOT EXISTS {table} ({_COLUMNS})")
    server.ask(f"INSERT INTO {table} {_ROWS.format(first=first, last=last)}")


def checksum(server: Server, table: str) -> Any:
    """Rows, and a sum over all their values, whatever their order."""
    names = "id, flag, small, ratio, label, at, born, blob"
    return server.ask(
        f"SELECT count(*), sum(hashtextextended(r::text, 0)::numeric) "
        f"FROM (SELECT {names} FROM {table}) AS r"
    )

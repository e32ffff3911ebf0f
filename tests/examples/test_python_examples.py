"""The examples in Python (componentize-py), run by the protocol's roles against real peers: a TCP
listener, a Postgres. Built and compiled once, and kept: two minutes the first time.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import jsonschema_rs
import msgspec
import psycopg
import pyarrow as pa
import pytest
import running
from running import arrow, counts, ended, frames, incremental, run, table
from rust_guests import PASSWORD, Server, loopback_postgres

from penstock.config.sections import NetworkPermissions, Permissions
from penstock.errors import DestinationError
from penstock.protocols.rapidbyte.declared.manifest import (
    config_schema,
    mode_problems,
    role_problems,
)
from penstock.protocols.rapidbyte.guest import probe
from penstock.protocols.rapidbyte.guest.events import CheckpointCall, DeadLettered
from penstock.protocols.rapidbyte.wire.messages import Policies, WriteMode

pytestmark = pytest.mark.slow
NAMES = ("python-source", "python-destination", "python-postgres", "python-transform")
TYPED = {
    "i16": pa.array([None, -5, 6], pa.int16()), "i64": pa.array([None, 2**62, -1]),
    "f32": pa.array([None, 0.5, 2.0], pa.float32()),
    "f64": pa.array([None, float("inf"), 1e300]), "ok": pa.array([None, True, False]),
    "text": pa.array([None, "it's a \\ \"test\"\n", "日本"]),
    "raw": pa.array([None, b"\0\xff", b""]), "day": pa.array([None, date(2024, 2, 29),
    date(1960, 1, 1)]), "at": pa.array([None, datetime(2024, 2, 29, 12, 30, 1, 5),
    datetime(1960, 1, 1, 0, 0, 0, 1)], pa.timestamp("us")), "nothing": pa.nulls(3),
    "money": pa.array([None, Decimal("12345678901234567.891"), Decimal("-0.001")]),
}  # fmt: skip


def marks(told: list[Any]) -> list[CheckpointCall]:
    return [t for t in told if isinstance(t, CheckpointCall)]


def blocked() -> Permissions:
    return Permissions(network=NetworkPermissions(allowed_hosts=()))


# -- manifests


@pytest.mark.parametrize("name", NAMES)
def test_its_manifest_names_its_role_and_checks_its_config(name: str):
    found = running.manifest(name).manifest
    assert found is not None
    roles: Any = ("source", "destination", "transform")
    assert [r for r in roles if not role_problems(found, r)] == [running.role_of(name)]
    schema = config_schema(found)
    assert schema is not None
    good = {
        "python-source": {"rows": 5}, "python-destination": {"host": "h", "port": 1},
        "python-postgres": {"host": "h", "user": "u", "database": "d"},
        "python-transform": {"minimum": {"column": "a", "value": 1}},
    }[name]  # fmt: skip
    checked = jsonschema_rs.Draft7Validator(schema)
    assert checked.is_valid(good)
    assert not checked.is_valid({**good, "typo": 1})
    assert not checked.is_valid({**good, "rows": "5", "port": 0, "lowercase": 1})


def test_write_modes_that_are_not_there_are_named():
    lines, tables = (
        running.manifest(n).manifest for n in ("python-destination", "python-postgres")
    )
    assert lines is not None and tables is not None
    assert mode_problems(lines, "destination", write_mode="upsert")
    assert not mode_problems(tables, "destination", write_mode="upsert")
    assert mode_problems(tables, "destination", write_mode="replace")


# -- source


def test_the_python_source_sends_what_the_c_source_sends():
    config = {"rows": 2500, "batch_rows": 1000, "start": 95}
    ours, theirs = (run(f"{kind}-source", config, context=incremental("100"))
                    for kind in ("python", "c"))  # fmt: skip
    assert table(ours).equals(table(theirs))
    assert [(m.frames, m.payload and m.payload.cursor_value) for m in marks(ours)] == [
        (m.frames, m.payload and m.payload.cursor_value) for m in marks(theirs)
    ]
    assert {**counts(ours), "bytes_read": 0} == {**counts(theirs), "bytes_read": 0}
    known, same = (probe.discover(running.stage(f"{kind}-source", {}), lambda _: None)
                   for kind in ("python", "c"))  # fmt: skip
    assert known == same
    shard = msgspec.structs.replace(running.FULL, partition_count=4, partition_index=2)
    ours, theirs = (run(f"{kind}-source", config, context=shard) for kind in ("python", "c"))
    assert table(ours).equals(table(theirs))


def test_the_python_source_refuses_what_it_has_not():
    for context, code in (
        (msgspec.structs.replace(running.FULL, stream_name="letters"), "NO_SUCH_STREAM"),
        (incremental(field="name"), "NO_SUCH_CURSOR"),
    ):
        fault = ended(run("python-source", {}, context=context)).fault
        assert fault is not None and (fault.category, fault.code) == ("config", code)


# -- lines over TCP


class Listener:
    """Takes lines, and answers each empty one with ``answer``; ``None``: closes instead."""

    def __init__(self, answer: Callable[[int], bytes | None], slow: float = 0) -> None:
        self._answer, self._slow = answer, slow
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.rows: list[dict[str, Any]] = []
        self.batches = 0
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def config(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self._socket.getsockname()[1]}

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as lines:
                time.sleep(self._slow)
                for line in lines:
                    if line != b"\n":
                        self.rows.append(json.loads(line))
                        continue
                    self.batches += 1
                    answer = self._answer(self.batches)
                    if answer is None:
                        break
                    peer.sendall(answer)

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def listening(answer: Callable[[int], bytes | None] = lambda _: b"ok\n", slow: float = 0):
    listener = Listener(answer, slow)
    try:
        yield listener
    finally:
        listener.close()


def test_lines_arrive_and_each_batch_is_acknowledged_before_its_checkpoint():
    with listening() as peer:
        report = probe.check(running.stage("python-destination", peer.config), lambda _: None)
        assert report.status == "success"
        told = run("python-destination", peer.config, [arrow(**TYPED), arrow(i64=[7])])
        assert [m.frames for m in marks(told)] == [1, 2]
        assert counts(told)["records_written"] == 4
    assert peer.rows == [
        dict.fromkeys(TYPED),
        {"i16": -5, "i64": 2**62, "f32": 0.5, "f64": None, "ok": True,
         "text": "it's a \\ \"test\"\n", "raw": "AP8=", "day": "2024-02-29",
         "at": "2024-02-29T12:30:01.000005+00:00", "nothing": None,
         "money": "12345678901234567.891"},
        {"i16": 6, "i64": -1, "f32": 2.0, "f64": 1e300, "ok": False, "text": "日本", "raw": "",
         "day": "1960-01-01", "at": "1960-01-01T00:00:00.000001+00:00", "nothing": None,
         "money": "-0.001"},
        {"i64": 7},
    ]  # fmt: skip


def test_a_slow_peer_is_waited_for():
    """Section 4.4: writes that would block, more than the socket's buffers hold."""
    many = arrow(text=["x" * 1000] * 8000)
    with listening(slow=1.0) as peer:
        told = run("python-destination", peer.config, [many])
        assert counts(told)["records_written"] == len(peer.rows) == 8000


def test_what_the_peer_refuses_or_drops_is_no_checkpoint():
    batches = [arrow(id=[1]), arrow(id=[2])]
    with listening(lambda n: b"ok\n" if n == 1 else b"disk full\n") as peer:
        told = run("python-destination", peer.config, batches)
    fault = ended(told).fault
    assert fault is not None and (fault.category, fault.code) == ("data", "NOT_KEPT")
    assert "disk full" in fault.message and [m.frames for m in marks(told)] == [1]
    with listening(lambda n: b"ok\n" if n == 1 else None) as peer:
        told = run("python-destination", peer.config, batches)
    fault = ended(told).fault
    assert fault is not None and (fault.category, fault.retryable) == ("transient_network", True)
    assert [m.frames for m in marks(told)] == [1]


def test_it_reaches_the_host_of_its_config_and_no_other():
    """Protocol, section 8: ``allow_runtime_config_domains``; the pipeline narrows it."""
    with listening() as peer:
        stage = running.stage("python-destination", peer.config, blocked())
        assert stage.allowed.hosts == ()
        with pytest.raises(DestinationError) as caught:
            probe.check(stage, lambda _: None)
        assert "NETWORK_DENIED" in str(caught.value)
        told = run("python-destination", peer.config, [arrow(id=[1])], permissions=blocked())
        assert ended(told).error is not None and not peer.rows


# -- Postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with loopback_postgres(shared_buffers="16MB", max_wal_size="256MB") as server:
        yield server


def writing(stream: str, key: list[str] | None = None) -> Any:
    mode = WriteMode(mode="upsert", primary_key=key) if key else WriteMode(mode="append")
    return msgspec.structs.replace(running.FULL, stream_name=stream, write_mode=mode)


def test_it_logs_in_with_a_password_and_not_without(postgres: Server):
    """SCRAM-SHA-256, over the host's socket."""
    report = probe.check(running.stage("python-postgres", postgres.config()), lambda _: None)
    assert report.status == "success"
    with pytest.raises(DestinationError) as caught:
        wrong = postgres.config(password="wrong")
        probe.check(running.stage("python-postgres", wrong), lambda _: None)
    assert caught.value.connector is not None and caught.value.connector["category"] == "auth"
    assert PASSWORD not in str(caught.value)


def test_rows_of_every_type_arrive_in_one_transaction(postgres: Server):
    told = run("python-postgres", postgres.config(), [arrow(**TYPED)], writing("typed; '\""))
    assert counts(told)["records_written"] == 3
    assert [(m.frames, m.payload and m.payload.id) for m in marks(told)] == [(1, 1)]
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute('SELECT * FROM "typed; \'""" ORDER BY i64').fetchall()
    expected = list(zip(*(column.to_pylist() for column in TYPED.values()), strict=True))
    assert found == [expected[2], expected[1], expected[0]]


def test_append_keeps_all_and_upsert_the_newest(postgres: Server):
    sent = frames(run("python-source", {"rows": 2500, "batch_rows": 1000}))
    for _ in range(2):
        assert ended(run("python-postgres", postgres.config(), sent, writing("kept"))).error is None
        upsert = run("python-postgres", postgres.config(), sent, writing("merged", ["id"]))
        assert ended(upsert).error is None
    twice = [arrow(id=[7, 7], name=["old", "new"]), arrow(id=[9000], more=[1.5])]
    told = run("python-postgres", postgres.config(), twice, writing("merged", ["id"]))
    assert counts(told)["records_written"] == 3
    assert postgres.ask("SELECT count(*), sum(id) FROM kept") == (5000, 2 * 2500 * 2501 // 2)
    assert postgres.ask("SELECT count(*), count(more) FROM merged") == (2501, 1)
    assert postgres.ask("SELECT name, amount FROM merged WHERE id = 7") == ("new", 3.5)


def test_a_run_that_fails_leaves_nothing(postgres: Server):
    def feed() -> Iterator[bytes]:
        yield arrow(id=[1])
        raise OSError("gone")

    told = run("python-postgres", postgres.config(), feed(), writing("halves"))
    assert ended(told).fault is not None and not marks(told)
    assert postgres.ask("SELECT to_regclass('halves')") == (None,)
    told = run("python-postgres", postgres.config(), [arrow(t=["ok"]), arrow(t=["a\0b"])],
               writing("halves"))  # fmt: skip
    fault = ended(told).fault
    assert fault is not None and (fault.category, fault.code) == ("data", "NUL")
    assert postgres.ask("SELECT to_regclass('halves')") == (None,)


def test_the_servers_errors_are_told_by_their_state(postgres: Server):
    postgres.ask("CREATE TABLE narrow (id smallint, t text)")
    told = run("python-postgres", postgres.config(), [arrow(id=[70000])], writing("narrow"))
    fault = ended(told).fault
    assert fault is not None and (fault.category, fault.code) == ("data", "SQL_22003")
    told = run("python-postgres", postgres.config(schema="absent"), [arrow(id=[1])], writing("t"))
    fault = ended(told).fault
    assert fault is not None and (fault.category, fault.code) == ("schema", "SQL_3F000")
    told = run("python-postgres", postgres.config(), [arrow(name=["a"])], writing("x", ["id"]))
    fault = ended(told).fault
    assert fault is not None and fault.category == "schema" and "id" in fault.message


def test_a_commit_whose_answer_is_lost_is_not_known(postgres: Server):
    """Protocol, section 5: ``after_commit_unknown`` is not safe to retry."""
    with cutting(postgres.port, b"COMMIT") as port:
        config = postgres.config(port=port)
        told = run("python-postgres", config, [arrow(id=[1])], writing("lost"))
    fault = ended(told).fault
    assert fault is not None and not marks(told)
    assert (fault.code, fault.commit_state) == ("COMMIT_LOST", "after_commit_unknown")
    assert fault.retryable and not fault.safe_to_retry


@contextlib.contextmanager
def cutting(port: int, word: bytes) -> Iterator[int]:
    """A relay to the server that ends the connection when a client says the word."""

    def back(server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)

    def relay() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            threading.Thread(target=back, args=(server, client), daemon=True).start()
            while data := client.recv(65536):
                if word in data:
                    client.shutdown(socket.SHUT_RDWR)
                    return
                server.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, daemon=True).start()
        yield listener.getsockname()[1]


# -- transform

RULES = {"lowercase": "name", "required": "name", "minimum": {"column": "amount", "value": 2}}
PEOPLE = arrow(
    id=[1, 2, 3, 4, 5],
    name=["ÄNNE", None, "Bob", "Eve", "Zoe"],
    amount=[2.0, 9.0, 1.5, None, 0.0],
)


@pytest.mark.parametrize("policy", ["dlq", "skip"])
def test_the_transform_cleans_rows(policy: Any):
    context = msgspec.structs.replace(running.FULL, policies=Policies(on_data_error=policy))
    told = run("python-transform", RULES, [PEOPLE, arrow(id=[6], name=[None], amount=[3.0])],
               context)  # fmt: skip
    assert table(told).to_pylist() == [
        {"id": 1, "name": "änne", "amount": 2.0},
        {"id": 4, "name": "eve", "amount": None},
    ]
    assert len(frames(told)) == 1  # the second has no rows left
    letters = [t.letter for t in told if isinstance(t, DeadLettered)]
    if policy == "skip":
        assert not letters
    else:
        assert [json.loads(letter.record_json) for letter in letters] == [
            {"id": 3, "name": "Bob", "amount": 1.5}, {"id": 5, "name": "Zoe", "amount": 0.0},
        ]  # fmt: skip
        assert {(x.error_category, x.stream_name) for x in letters} == {("data", "numbers")}
        assert letters[0].error_message == "amount is 1.5, below 2"
    assert {k: v for k, v in counts(told).items() if "bytes" not in k} == {
        "records_in": 6, "records_out": 2, "batches_processed": 2,
    }  # fmt: skip


def test_a_rule_that_is_broken_fails_where_the_pipeline_says_so():
    fault = ended(run("python-transform", RULES, [PEOPLE])).fault
    assert fault is not None
    assert (fault.category, fault.code, fault.scope) == ("data", "BELOW_MINIMUM", "record")
    fault = ended(run("python-transform", {"lowercase": "nope"}, [PEOPLE])).fault
    assert fault is not None and (fault.category, fault.code) == ("schema", "NO_SUCH_COLUMN")


def test_python_from_end_to_end(postgres: Server):
    """A source through a transform into Postgres, all three of them guests."""
    sent = frames(run("python-source", {"rows": 300}))
    context = msgspec.structs.replace(writing("clean"), policies=Policies(on_data_error="skip"))
    cleaned = frames(run("python-transform", RULES, sent, context))
    assert counts(run("python-postgres", postgres.config(), cleaned, context))
    expected = [i for i in range(1, 301) if i % 10 != 3 and i * 0.5 >= 2]
    assert postgres.ask("SELECT count(*), sum(id), min(name) FROM clean") == (
        len(expected), sum(expected), "n10",
    )  # fmt: skip

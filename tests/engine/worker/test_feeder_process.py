"""A push task end to end without Spark: real parts, a real destination process, orders and acks in
a real mailbox; and what is left when any of them is killed."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.codec.decode import RowDecoder
from penstock.codec.json_schema import row_schema
from penstock.connectors.launch import Launch
from penstock.engine.channel import feeder_mail, mailbox
from penstock.engine.channel.feeder_mail import PushMail
from penstock.engine.channel.mailbox import Mailbox
from penstock.engine.log.log import FileLog
from penstock.engine.specs.feeder import AckedSegments, FeedOrder, PushEnd, PushJob, PushResult
from penstock.engine.specs.lane import NewConfig
from penstock.engine.worker.ack_tracker import FedSegments
from penstock.engine.worker.counted_rows import CountedRows
from penstock.engine.worker.feeder import run_push
from penstock.errors import LogError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.names import clean_columns
from penstock.model.segments import (
    PartRef,
    Segment,
    SegmentId,
    StreamSlice,
    WriteDisposition,
)
from penstock.model.state import StateScope, StateType
from penstock.protocols.airbyte.package import PACKAGE
from penstock.protocols.writing import END, Acks, DestinationCounts, WriteStream
from penstock.runtimes.contract import RunTimeouts
from penstock.tasks.child_process import CLAIMED

pytestmark = pytest.mark.dear

STUB = Path(__file__).parents[2] / "stubs" / "stub_destination.py"
S, T = StreamId(None, "s"), StreamId("n", "t")
SECRET = "very-secret-key"
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
}


def columns() -> Any:
    record = PACKAGE.schema.data_type(SCHEMA)
    return row_schema(record, clean_columns(f.source for f in record.fields), None)


def stream(of: StreamId) -> WriteStream:
    return WriteStream(
        configured=ConfiguredStream(
            stream=Stream(id=of, json_schema=SCHEMA),
            sync_mode=SyncMode.incremental,
            destination_sync_mode=DestinationSyncMode.append,
            generation_id=0,
            minimum_generation_id=0,
            sync_id=1,
        ),
        target=StreamId(of.namespace, f"to_{of.name}"),
        schemas={1: columns()},
        latest=1,
    )


def scope(of: StreamId | None) -> StateScope:
    return StateScope(StateType.global_) if of is None else StateScope(StateType.stream, of)


def state_of(of: StreamId | None, cursor: int) -> str:
    if of is None:
        body: Any = {"type": "GLOBAL", "global": {"shared_state": cursor, "stream_states": []}}
        return json.dumps(body)
    named = {"name": of.name, **({"namespace": of.namespace} if of.namespace else {})}
    body = {"stream_descriptor": named, "stream_state": cursor}
    return json.dumps({"type": "STREAM", "stream": body})


class Setting:
    """A log with parts, a mailbox, and a child process that is fed orders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = FileLog(folder / "log")
        self.log.claim(1, "me")
        self.box = Mailbox(folder / "log", "run")
        self.box.create()
        self.mail = PushMail(folder / "log", "run", 1)
        self.mail.create()
        self.sink = folder / "sink"
        self.seq = 0
        self.id = 0
        self.child: subprocess.Popen[bytes] | None = None
        self._beating = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._beating.wait(1.0):
            self.box.beat()

    def silence(self) -> None:
        """The driver is gone."""
        self._beating.set()

    def segment(
        self,
        of: StreamId,
        count: int,
        *,
        state: bool = True,
        shared: bool = False,
        width: int = 0,
    ) -> Segment:
        self.seq += 1
        bodies = [
            json.dumps({"id": self.id + i, "text": "x" * width}).encode() for i in range(count)
        ]
        self.id += count
        parts = ()
        if count:
            table = RowDecoder(columns()).decode(bodies, self.id, [1] * count).table
            raw = sum(map(len, bodies))
            parts = (self.log.write_part(1, f"{self.seq:06d}-1", table, raw),)
        one = StreamSlice(
            stream=of,
            disposition=WriteDisposition(mode=DestinationSyncMode.append),
            schema_version=1,
            generation=0,
            fills_generation=False,
            parts=parts,
            read=count,
        )
        speaks_for = None if shared else of
        return Segment(
            id=SegmentId(1, self.seq),
            lane=0,
            scope=scope(speaks_for),
            slices=(one,),
            state=state_of(speaks_for, self.seq) if state else None,
        )

    def start(self, config: dict[str, Any] | None = None, **job: Any) -> "Setting":
        given = {"sink": str(self.sink), "api_key": SECRET, **(config or {})}
        body = msgspec.json.encode(job_for(self, config=given, secrets=(SECRET,), **job))
        self.child = subprocess.Popen(
            [sys.executable, "-m", "penstock.tasks.child_start", "penstock.engine.worker.feeder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.child.stdin is not None
        self.child.stdin.write(msgspec.msgpack.encode(len(body)) + body)
        self.child.stdin.flush()
        return self

    def order(self, *segments: Segment, **more: Any) -> "Setting":
        self.mail.order(FeedOrder(segments=segments, **more))
        return self

    def result(self) -> PushResult:
        child = self.child
        assert child is not None and child.stdout is not None
        answer = child.stdout.read()
        assert child.wait(30) == 0
        return msgspec.json.decode(answer, type=PushResult)

    def acked(self) -> list[int]:
        return [s.seq for a in self.mail.acks() for s in a.segments]

    def await_acked(self, count: int) -> list[int]:
        found: list[int] = []
        until(lambda: found.extend(self.acked()) or len(found) >= count)
        return found

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(x) for x in self.sink.read_bytes().splitlines()]

    def ids(self) -> list[int]:
        return [x["record"]["data"]["id"] for x in self.lines() if x.get("type") == "RECORD"]

    def pid(self) -> int:
        return self.lines()[0]["run"]["pid"]

    def end(self) -> None:
        self.silence()
        if self.child is not None:
            if self.child.poll() is None:
                self.child.kill()
            self.child.wait(10)
            for pipe in (self.child.stdin, self.child.stdout):
                assert pipe is not None
                pipe.close()


def until(done: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path)
    yield made
    made.end()


def codes(result: PushResult) -> list[str]:
    return [e["code"] for e in result.errors]


def test_orders_are_fed_in_order_and_acks_name_segments_once(setting: Setting) -> None:
    """L1: several orders, an idle time between, states acked while more is to come."""
    setting.order(setting.segment(S, 3), setting.segment(T, 2)).start()
    assert setting.await_acked(2) == [1, 2]
    time.sleep(0.3)
    setting.order(setting.segment(S, 0, state=False), setting.segment(S, 2), done=(S,))
    setting.order(done=(T,), end=True)
    result = setting.result()
    assert (result.end, result.errors, result.unacked) == (PushEnd.finished, [], [])
    assert setting.acked() == [3, 4]
    assert sorted(result.fed) == [(S, 5), (T, 2)]
    assert setting.ids() == list(range(7))
    kinds = [x["type"] for x in setting.lines()[1:]]
    assert kinds[-2:] == ["TRACE", "TRACE"] and kinds.count("STATE") == 3
    assert setting.lines()[1]["record"]["stream"] == "to_s"
    assert result.stats["bytes"] > 0 and "destination_wait" in result.stats
    shown = setting.mail.progress(1)
    assert shown is not None and (S.key, 5) in [(k, n) for k, n, _, _ in shown.streams]
    for path in setting.mail.folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_rows_after_the_last_state_are_covered_by_a_good_end(setting: Setting) -> None:
    setting.order(setting.segment(S, 2), setting.segment(S, 2, state=False), end=True).start()
    assert setting.result().unacked == []
    assert setting.acked() == [1, 2]


def test_a_large_part_is_fed_in_bounded_batches(setting: Setting) -> None:
    setting.order(setting.segment(S, 40_000, width=500), end=True).start()
    result = setting.result()
    assert result.end is PushEnd.finished and setting.acked() == [1]
    assert setting.ids() == list(range(40_000))
    assert result.stats["peak_bytes"] < 600 << 20


def test_a_destination_that_never_acks_leaves_the_states_and_says_so(setting: Setting) -> None:
    setting.order(setting.segment(S, 2), end=True).start({"acks": "none"})
    result = setting.result()
    assert (result.end, result.unacked) == (PushEnd.finished, [SegmentId(1, 1)])
    assert setting.acked() == []
    assert any("gave no state back" in n for n in result.notes)


def test_l6_a_stream_that_did_not_end_complete_is_told_so_and_its_rows_are_kept(
    setting: Setting,
) -> None:
    """Some destinations give up what they have not written where a stream has no status at all, and
    exit with 1 after an INCOMPLETE one: that is no failure of theirs once everything is acked."""
    setting.order(setting.segment(S, 2), setting.segment(T, 2), done=(T,), end=True)
    result = setting.start({"statuses": True}).result()
    assert (result.end, result.errors, result.unacked) == (PushEnd.finished, [], [])
    assert setting.acked() == [1, 2]
    assert any("as s did not end complete: some streams are incomplete" in n for n in result.notes)
    told = [x["trace"]["stream_status"] for x in setting.lines() if x.get("type") == "TRACE"]
    assert [(t["stream_descriptor"]["name"], t["status"]) for t in told] == [
        ("to_t", "COMPLETE"),
        ("to_s", "INCOMPLETE"),
    ]


def test_a_failure_with_something_left_unacked_stays_a_failure(setting: Setting) -> None:
    setting.order(setting.segment(S, 2), setting.segment(S, 2, state=False), end=True)
    result = setting.start({"statuses": True}).result()
    assert result.end is PushEnd.failed and result.unacked == [SegmentId(1, 2)]
    assert [e["message"] for e in result.errors] == ["some streams are incomplete"]


@pytest.mark.parametrize("acks", [Acks.echo, Acks.at_end])
def test_l8_rows_that_the_destination_counts_as_rejected_come_with_the_acks(
    setting: Setting, acks: Acks
) -> None:
    """Protocol 0.18, AirbyteStateStats.rejectedRecordCount: there is no more of them."""
    orders = [setting.segment(S, 5), setting.segment(T, 3), setting.segment(S, 1)]
    result = setting.order(*orders, end=True).start({"rejects": 2}, acks=acks).result()
    assert (result.end, result.errors, result.unacked) == (PushEnd.finished, [], [])
    found: dict[StreamId, int] = {}
    for acked in setting.mail.acks():
        assert not acked.rejects
        for of, rows in acked.rejected:
            found[of] = found.get(of, 0) + rows
    assert found == {S: 3, T: 2}
    assert "s: the destination rejected 3 rows, and reports only their number" in (result.notes)


@pytest.mark.parametrize(
    ("fed", "written", "rejected", "found", "noted"),
    [
        ({S: 100}, 60, 40, [(S, 40)], ["s: the destination rejected 40 rows"]),
        ({S: 100}, None, 40, [(S, 40)], ["s: the destination rejected 40 rows"]),
        ({S: 100}, 100, 0, [], []),
        ({S: 6, T: 4}, 0, 10, [(S, 6), (T, 4)], ["s: the dest", "n.t: the dest"]),
        (
            {S: 6, T: 1},
            4,
            3,
            [(S, 2)],
            ["s: the destination rejected 2", "rejected 1 rows, and do"],
        ),
        ({S: 6, T: 4}, 7, 3, [], ["rejected 3 rows, and does not report their stream"]),
        ({S: 100}, 60, 0, [], ["s: the destination reports that it wrote 60 rows and rejected 0"]),
        ({S: 2}, 0, 9, [(S, 2)], ["s: the destination rejected 2 rows", "wrote 0 rows and rejec"]),
        ({}, 0, 0, [], []),
    ],
)
def test_l8_no_more_rows_are_rejected_of_a_stream_than_certainly_were(
    fed: dict[StreamId, int],
    written: int | None,
    rejected: int,
    found: list[tuple[StreamId, int]],
    noted: list[str],
) -> None:
    counts = CountedRows()
    assert list(counts.rejected(DestinationCounts(fed, written, rejected))) == found
    notes = counts.notes()
    assert len(notes) == len(noted) and all(n in told for n, told in zip(noted, notes, strict=True))


def test_at_end_acks_everything_that_was_fed(setting: Setting) -> None:
    setting.order(setting.segment(S, 2), setting.segment(S, 1, state=False), end=True)
    result = setting.start({"acks": "none"}, acks=Acks.at_end).result()
    assert (result.unacked, setting.acked()) == ([], [1, 2])


def test_exit_1_after_half_keeps_what_was_acked_and_blames_the_destination(
    setting: Setting,
) -> None:
    """L10: its last words, without the secret."""
    segments = [setting.segment(S, 2000, width=500) for _ in range(4)]
    setting.order(*segments, end=True)
    config = {"exit_at": 3000, "say": f"the key is {SECRET}", "log": f"or {SECRET}"}
    result = setting.start(config).result()
    assert result.end is PushEnd.failed and codes(result) == ["destination.exited"]
    assert "exit code 1; its last output: the key is ****" in result.errors[0]["message"]
    assert result.errors[0]["exit_code"] == 5
    assert setting.acked() == [1]
    assert SegmentId(1, 2) in result.unacked and SegmentId(1, 1) not in result.unacked
    said = setting.mail.log_path(1).read_text()
    assert '"destination"' in said and '"destination.stderr"' in said and SECRET not in said


def test_its_trace_error_is_the_error(setting: Setting) -> None:
    setting.order(setting.segment(S, 2000, width=500), setting.segment(S, 4000, width=500))
    result = setting.start({"exit_at": 3000, "trace": f"disk full {SECRET}"}).result()
    assert [e["message"] for e in result.errors] == ["disk full ****"]
    assert codes(result) == ["destination.system_error"]


@pytest.mark.parametrize("code", [1, 0])
def test_a_transient_error_may_pass_and_says_what_was_not_acked(
    setting: Setting, code: int
) -> None:
    """Counted as given: the run says that it is sent again."""
    setting.order(setting.segment(S, 5), setting.segment(S, 5, state=False))
    told = {"exit_at": 8, "exit_code": code, "trace": "busy", "trace_always": True}
    config = {**told, "trace_type": "transient_error"}
    result = setting.start(config, attempts=3, backoff=2.0).result()
    assert result.end is PushEnd.failed and codes(result)[0] == "destination.transient_error"
    assert result.retry is not None and 2 <= result.retry <= 2.5
    assert (setting.acked(), result.unacked) == ([1], [SegmentId(1, 2)])


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("transient_error", {"attempts": 3, "attempt": 3}),
        ("transient_error", {}),
        ("config_error", {"attempts": 3}),
        ("system_error", {"attempts": 3}),
    ],
)
def test_no_other_failure_is_tried_again(setting: Setting, kind: str, more: dict[str, Any]) -> None:
    setting.order(setting.segment(S, 5, state=False))
    config = {"exit_at": 3, "trace": "no", "trace_type": kind}
    result = setting.start(config, **more).result()
    assert result.retry is None and codes(result) == [f"destination.{kind}"]


def test_a_transient_error_with_exit_0_at_the_end_is_tried_again_where_something_is_left(
    setting: Setting,
) -> None:
    setting.order(setting.segment(S, 5), done=(S, T), end=True)
    config = {"acks": "none", "trace": "busy", "trace_always": True}
    config = {**config, "trace_type": "transient_error"}
    result = setting.start(config, attempts=3, backoff=2.0).result()
    assert result.retry is not None and result.unacked == [SegmentId(1, 1)]


def test_l6_that_a_stream_is_done_is_told_where_it_is_known(setting: Setting) -> None:
    """One that is begun again knows what it is sent again, not what was acked before."""
    gone = StreamId(None, "overwritten")
    setting.order(setting.segment(S, 5), done=(gone, S, T), end=True)
    result = setting.start({}).result()
    assert (result.end, result.errors, setting.acked()) == (PushEnd.finished, [], [1])


STOPPED = {"at": "row", "after": 3, "status": "ok"}


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ({"halt": STOPPED}, PushEnd.finished),
        ({"halt": {**STOPPED, "status": "error"}}, PushEnd.failed),
    ],
)
def test_l1_exit_0_covers_no_rows_that_a_halted_stream_did_not_take(
    setting: Setting, told: dict[str, Any], end: PushEnd
) -> None:
    """L7: those of another stream are covered, also where the run fails."""
    told["streams"] = ["to_s", "to_t"]
    command = (sys.executable, str(STUB.with_name("stub_syncmaven.py")), json.dumps(told))
    launch = Launch(
        protocol="syncmaven", role="destination", command=command, cwd=str(setting.folder)
    )
    segments = [
        setting.segment(S, 6, state=False),
        setting.segment(T, 2, state=False),
        setting.segment(T, 0, state=False, shared=True),
    ]
    setting.order(*segments, done=(S, T), end=True)
    result = setting.start(protocol="syncmaven", launch=msgspec.to_builtins(launch)).result()
    assert (result.end, setting.acked()) == (end, [2])
    assert [s.seq for s in result.unacked] == [1, 3]
    assert [s for s, _ in result.halted] == ([S] if end is PushEnd.finished else [])


def test_exit_0_in_the_middle_is_a_failure(setting: Setting) -> None:
    """Its input had not ended: nothing that it did not ack is covered."""
    setting.order(setting.segment(S, 5, state=False)).start({"exit_at": 4, "exit_code": 0})
    result = setting.result()
    assert result.end is PushEnd.failed and codes(result) == ["destination.ended_early"]
    assert setting.acked() == [] and result.unacked == [SegmentId(1, 1)]


def test_a_destination_that_cannot_be_started(setting: Setting) -> None:
    launch = msgspec.to_builtins(
        Launch(protocol="airbyte", role="destination", command=("./nowhere",), cwd="/tmp")
    )
    result = setting.start(launch=launch).result()
    assert result.end is PushEnd.failed and codes(result) == ["connector.not_found"]
    assert result.errors[0]["exit_code"] == 5


def test_sigkill_of_the_destination_loses_no_ack(setting: Setting) -> None:
    setting.order(setting.segment(S, 3)).start()
    assert setting.await_acked(1) == [1]
    os.kill(setting.pid(), signal.SIGKILL)
    result = setting.result()
    assert result.end is PushEnd.failed and "signal 9" in result.errors[0]["message"]
    assert result.unacked == []


def test_sigkill_of_the_child_takes_the_destination_with_it(setting: Setting) -> None:
    """L11. What was acked before is in the mailbox."""
    setting.order(setting.segment(S, 3)).start()
    assert setting.await_acked(1) == [1]
    pid = setting.pid()
    assert setting.child is not None
    setting.child.kill()
    until(lambda: gone(pid), 15)


def test_it_stops_when_whoever_started_it_is_gone(setting: Setting) -> None:
    setting.order(setting.segment(S, 3)).start()
    setting.await_acked(1)
    pid = setting.pid()
    assert setting.child is not None and setting.child.stdin is not None
    setting.child.stdin.close()
    assert setting.result().end is PushEnd.cancelled
    assert gone(pid)


def test_it_stops_when_the_run_is_cancelled(setting: Setting) -> None:
    setting.order(setting.segment(S, 3)).start()
    setting.await_acked(1)
    setting.box.cancel()
    result = setting.result()
    assert (result.end, result.errors) == (PushEnd.cancelled, [])


def test_a_hung_destination_is_stopped(setting: Setting) -> None:
    """L11: neither reads nor answers."""
    setting.order(setting.segment(S, 8000, width=500))
    short = RunTimeouts(heartbeat=1.0, stop=0.5)
    result = setting.start({"hang_at": 3}, timeouts=short).result()
    assert codes(result) == ["destination.heartbeat"]


def test_l4_a_retried_task_feeds_nothing(setting: Setting) -> None:
    setting.order(setting.segment(S, 3), end=True).start()
    setting.result()
    setting.end()
    setting.box.beat()
    setting.start()
    assert setting.child is not None and setting.child.wait(30) == CLAIMED
    assert setting.ids() == [0, 1, 2]


def test_a_damaged_part_is_never_fed(setting: Setting) -> None:
    good, bad = setting.segment(S, 3), setting.segment(S, 3)
    path = setting.log.root / bad.slices[0].parts[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    result = setting.order(good, bad, end=True).start().result()
    assert result.end is PushEnd.failed and codes(result) == ["log.corrupt"]
    heard = setting.ids() if setting.sink.exists() else []  # it may be stopped before it hears
    assert heard in ([], [0, 1, 2])


def test_a_new_configuration_is_in_the_mailbox_even_when_it_fails(setting: Setting) -> None:
    """CONTROL: kept apart from the source's, secret, and never logged."""
    new = {"api_key": "rotated-key-2"}
    command = (sys.executable, str(STUB), "--with", json.dumps({"control": new}))
    launch = msgspec.to_builtins(
        Launch(protocol="airbyte", role="destination", command=command, cwd="/tmp")
    )
    config = {"log": "now rotated-key-2", "exit_at": 1}
    setting.order(setting.segment(S, 3)).start(config, launch=launch).result()
    assert [c for _, c in setting.mail.configs(1)] == [NewConfig("hash", new)]
    assert list(setting.box.configs()) == []
    assert "rotated-key-2" not in setting.mail.log_path(1).read_text()


def test_a_schema_and_a_stream_that_the_job_lacked(setting: Setting) -> None:
    told = stream(S)
    setting.order(setting.segment(S, 1), streams=(told,)).start()
    setting.await_acked(1)
    setting.order(setting.segment(StreamId(None, "new"), 1), streams=(), end=True)
    result = setting.result()
    assert codes(result) == ["destination.new_stream"]
    assert result.unacked == [SegmentId(1, 2)]


# -- the mailbox and the bookkeeping alone


def test_mail_is_taken_in_order_and_once(tmp_path: Path) -> None:
    Mailbox(tmp_path, "r").create()
    driver, task = PushMail(tmp_path, "r", 7), PushMail(tmp_path, "r", 7)
    driver.create()
    assert task.next_order() is None and driver.acks() == []
    driver.order(FeedOrder(streams=(stream(S),)))
    driver.order(FeedOrder(end=True))
    first = task.next_order()
    assert first is not None and first.streams[0].schemas[1] == columns()
    second = task.next_order()
    assert second is not None and second.end and task.next_order() is None
    task.ack(AckedSegments(segments=(SegmentId(1, 1),)))
    task.ack(AckedSegments(segments=(SegmentId(1, 2), SegmentId(1, 3))))
    assert [s.seq for a in driver.acks() for s in a.segments] == [1, 2, 3]
    assert driver.acks() == []
    task.claim("one")
    with pytest.raises(LogError):
        task.claim("two")


def bare(
    seq: int, of: StreamId | None, *, state: bool, scoped: bool = True, rows: int = 1
) -> Segment:
    """A segment of so many rows, of its own stream or (shared) of S."""
    part = PartRef(path="p", rows=rows, raw_bytes=rows, size=rows, crc=0)
    one = StreamSlice(
        stream=of or S,
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        schema_version=1,
        generation=0,
        fills_generation=False,
        parts=(part,) if rows else (),
        read=rows,
    )
    return Segment(
        id=SegmentId(1, seq),
        lane=0,
        scope=scope(of) if scoped else None,
        slices=(one,),
        state="{}" if state else None,
    )


def fed(*segments: Segment) -> FedSegments:
    cover = FedSegments()
    for segment in segments:
        cover.fed(segment)
    return cover


def ends(cover: FedSegments) -> list[int]:
    """The segments that a good end covers."""
    return sorted(s.seq for s in cover.ended_well())


def test_l1_what_an_ack_covers() -> None:
    cover = FedSegments()
    given = [
        bare(1, S, state=False),
        bare(2, T, state=True),  # mark 1
        bare(3, S, state=True),  # mark 2
        bare(4, S, state=False),
        bare(5, S, state=True),  # mark 3
        bare(6, None, state=False, scoped=False),
        bare(7, S, state=False),
    ]
    assert [cover.fed(s) for s in given] == [None, 1, 2, None, 3, None, None]
    assert cover.acked(9) == []
    assert [s.seq for s in cover.acked(3)] == [1, 3, 4, 5], "marks before it are acked with it"
    assert cover.acked(2) == [] and cover.acked(3) == []
    cover.begin(SegmentId(1, 8))
    assert [s.seq for s in cover.left()] == [2, 6, 7, 8]
    assert ends(cover) == [6, 7]
    assert [s.seq for s in cover.acked(END)] == [2]
    assert [s.seq for s in cover.left()] == [8]


def test_l1_a_good_end_covers_states_of_no_row_and_never_one_of_rows() -> None:
    """Some targets give back only the first state where no record came, some give back none."""
    assert ends(fed(bare(1, S, state=True, rows=0), bare(2, T, state=True, rows=0))) == [1, 2]
    once = fed(
        bare(1, S, state=True),
        bare(2, S, state=True, rows=0),
        bare(3, S, state=True, rows=0),
        bare(4, S, state=False),
    )
    assert [s.seq for s in once.acked(1)] == [1]
    assert ends(once) == [2, 3, 4]
    assert once.left() == [] and once.acked(2) == []


def test_l1_a_state_after_rows_that_were_not_acked_covers_them() -> None:
    """A state between them and the end says the same of them; nor may rows be settled without the
    state that covers them, which the next run would take for one of no row."""
    lost = fed(bare(1, S, state=True), bare(2, S, state=True, rows=0), bare(3, S, state=False))
    assert ends(lost) == []
    bare_rows = fed(
        bare(1, S, state=True, rows=0), bare(2, S, state=False), bare(3, S, state=True, rows=0)
    )
    assert ends(bare_rows) == [1]
    assert [s.seq for s in bare_rows.left()] == [2, 3]


def test_l1_a_shared_state_covers_the_rows_of_every_scope() -> None:
    """A generation's rows are fed after the shared state that covers them, in a scope of their
    own; a stream's own state covers that stream."""
    both = (bare(1, None, state=True, rows=0), bare(2, T, state=True, rows=0))
    assert ends(fed(*both)) == [1, 2]
    generation = fed(*both, bare(3, S, state=False))
    assert ends(generation) == [2]
    assert [s.seq for s in generation.left()] == [1, 3]
    assert [s.seq for s in generation.acked(1)] == [1]
    assert ends(generation) == [3]


def test_l1_a_shared_mark_covers_shared_segments_only() -> None:
    cover = fed(bare(1, None, state=False), bare(2, S, state=False), bare(3, None, state=True))
    assert [s.seq for s in cover.acked(1)] == [1, 3]
    assert [s.seq for s in cover.left()] == [2]


def test_l7_a_stream_is_acked_by_itself() -> None:
    """Not what it shares with others, whose rows may not be written."""
    cover = FedSegments()
    given = [
        bare(1, S, state=False),
        bare(2, T, state=False),
        bare(3, None, state=False),
        bare(4, S, state=True),  # mark 1
        bare(5, None, state=False, scoped=False),
        bare(6, S, state=False),
    ]
    for segment in given:
        cover.fed(segment)
    assert [s.seq for s in cover.stream_acked(S)] == [1, 4, 6]
    assert cover.stream_acked(S) == [] and cover.acked(1) == []
    assert [s.seq for s in cover.left()] == [2, 3, 5]


# -- in this process: what cannot be brought about from outside


def job_for(setting: Setting, **more: Any) -> PushJob:
    given: dict[str, Any] = {
        "run": "run",
        "number": 1,
        "log_root": str(setting.folder / "log"),
        "protocol": "airbyte",
        "source_protocol": "airbyte",
        "pipeline": "p",
        "launch": msgspec.to_builtins(
            Launch(
                protocol="airbyte",
                role="destination",
                command=(sys.executable, str(STUB)),
                cwd=str(setting.folder),
            )
        ),
        "config": {"sink": str(setting.sink)},
        "config_hash": "hash",
        "streams": (stream(S), stream(T)),
        "timeouts": RunTimeouts(heartbeat=60, stop=1),
    }
    return PushJob(**{**given, **more})


def test_it_stops_when_the_driver_is_not_heard_of(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "LEASE_SECONDS", 1.5)
    setting.order(setting.segment(S, 3))
    setting.silence()
    result = run_push(job_for(setting), threading.Event())
    assert result.end is PushEnd.cancelled
    assert setting.acked() == [1], "what was acked is in the mailbox all the same"
    assert gone(setting.pid())


def test_an_ack_that_cannot_be_written_is_not_lost_in_silence(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = feeder_mail.replace

    def put(path: Path, body: bytes, **more: Any) -> None:
        if path.name.startswith("ack"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, body, **more)

    monkeypatch.setattr(feeder_mail, "replace", put)
    setting.order(setting.segment(S, 3), end=True)
    result = run_push(job_for(setting), threading.Event())
    assert result.end is PushEnd.failed and codes(result) == ["log.full"]
    assert result.unacked == [SegmentId(1, 1)]


def test_a_run_that_is_over_is_not_joined(setting: Setting) -> None:
    setting.silence()
    time.sleep(0.1)
    setting.box.remove()
    with pytest.raises(LogError):
        run_push(job_for(setting), threading.Event())

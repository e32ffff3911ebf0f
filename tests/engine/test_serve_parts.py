"""What ``penstock serve`` is made of: states that go back in order (L1), an input that becomes a
pipe, refreshes that replace once (L6)."""

import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.command_line import pipeline_from_arguments
from penstock.engine.deliver.load_plan import decide
from penstock.engine.log.memory import MemoryLog
from penstock.engine.plan.streams import StreamsPlan
from penstock.engine.serve import Echo, ServedInput, input_pipe, refuse_remote
from penstock.engine.specs.lane import LaneStream
from penstock.engine.specs.plan import PlannedStream
from penstock.engine.worker.host_states import EveryState, NewestStates
from penstock.engine.worker.sealer import Sealer
from penstock.errors import ConfigError
from penstock.model.catalog import (
    Catalog,
    ConfiguredStream,
    DestinationSyncMode,
    Stream,
    StreamId,
    SyncMode,
)
from penstock.model.events import Batch, Reject, State, Status, StreamStatus
from penstock.model.segments import Load, WriteDisposition
from penstock.model.state import StateScope, StateType, StoredState
from penstock.model.types import RowSchema
from penstock.protocols.hosts import HostGeneration
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.tables.contract import TableName

SHARED = StateScope(StateType.legacy)
ONE = StateScope(StateType.stream, StreamId(None, "one"))
TWO = StateScope(StateType.stream, StreamId(None, "two"))


def unheard(state: str, taken: int, rejected: int) -> None:
    del state, taken, rejected


class Told:
    """An echo over one file, and what it said."""

    def __init__(self, folder: Path, *, every: bool = True) -> None:
        self.said: list[str] = []
        self.counts: list[tuple[int, int]] = []
        self.path = folder / "states-1.jsonl"
        self.echo = Echo(self._hear, every=every)
        self.echo.follow(self.path)

    def met(self, *states: tuple[StateScope, str], cut: bool = False) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            for scope, blob in states:
                file.write(json.dumps([scope.key, blob]) + ("" if cut else "\n"))

    def _hear(self, state: str, taken: int, rejected: int) -> None:
        self.said.append(state)
        self.counts.append((taken, rejected))

    def committed(self, *states: tuple[StateScope, str]) -> list[str]:
        """What is said on their commit."""
        before = len(self.said)
        self.echo.committed([StoredState(scope, blob) for scope, blob in states])
        return self.said[before:]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_l1_a_committed_state_brings_those_before_it_in_order(told: Told) -> None:
    told.met((SHARED, "1"), (SHARED, "2"), (SHARED, "3"))
    assert told.committed((SHARED, "2")) == ["1", "2"]
    assert told.committed((SHARED, "2")) == []
    assert told.committed((SHARED, "3")) == ["3"]


def test_l1_each_stream_has_its_own_order(told: Told) -> None:
    told.met((ONE, "a"), (TWO, "b"), (ONE, "c"))
    assert told.committed((TWO, "b")) == ["b"]
    assert told.committed((ONE, "c")) == ["a", "c"]


def test_l1_of_equal_states_the_first_is_meant(told: Told) -> None:
    """The rows between the two need not be there."""
    told.met((SHARED, "a"), (SHARED, "b"), (SHARED, "a"), (SHARED, "c"))
    assert told.committed((SHARED, "a")) == ["a"]
    assert told.committed((SHARED, "a")) == ["b", "a"]
    assert told.committed((SHARED, "c")) == ["c"]


def test_a_state_that_nobody_met_here_goes_to_nobody(told: Told) -> None:
    """An earlier run's load is repeated: its host sends again what had no answer."""
    assert told.committed((SHARED, "old")) == []
    told.met((SHARED, "new"))
    assert told.committed((SHARED, "old")) == []
    assert told.committed((SHARED, "new")) == ["new"]


def test_a_line_that_is_being_written_waits(told: Told) -> None:
    told.met((SHARED, "a"))
    told.met((SHARED, "b"), cut=True)
    assert told.committed((SHARED, "b")) == []
    with told.path.open("a") as file:
        file.write("\n")
    assert told.committed((SHARED, "b")) == ["a", "b"]


def test_the_rest_goes_back_when_everything_is_committed(told: Told) -> None:
    long, odd = json.dumps("x" * 200_000), '{"ü":"\\u2028"}'
    told.met((ONE, long), (TWO, odd), (ONE, "{}"), (ONE, "{}"))
    told.echo.rest()
    assert sorted(told.said) == sorted([long, odd, "{}", "{}"])
    told.echo.rest()
    assert len(told.said) == 4


def test_l1_a_load_brings_the_newest_state_of_each_scope_where_not_every_one_is_asked_for(
    tmp_path: Path,
) -> None:
    """A host that saves each line by itself spends more on that than the sync takes."""
    told = Told(tmp_path, every=False)
    told.met((ONE, "1"), (TWO, "a"), (ONE, "2"), (TWO, "b"), (ONE, "3"), (ONE, "4"))
    assert told.committed((ONE, "2")) == ["2"]
    assert told.committed((ONE, "2")) == []
    assert told.committed((ONE, "3"), (TWO, "b")) == ["3", "b"]
    told.met((TWO, "a"), (TWO, "c"), (TWO, "a"))
    assert told.committed((TWO, "a")) == ["a"], "what comes after the first need not be there"
    told.said.clear()
    told.echo.rest()
    assert sorted(told.said) == ["4", "a"]


def test_a_state_that_another_supersedes_before_it_is_sealed_is_not_written(tmp_path: Path) -> None:
    written: list[bytes] = []
    host = NewestStates(written.append)
    for scope, blob in ((ONE, "1"), (TWO, "a"), (ONE, "2")):
        host.state(State(scope, blob))
    assert written == []
    host.decoded()
    assert [json.loads(line) for line in written] == [[ONE.key, "2"], [TWO.key, "a"]]
    host.decoded()
    assert len(written) == 2


def counted(folder: Path, *said: Any) -> list[tuple[str, int, int]]:
    """What goes back when everything is committed. ``said``: events of a sealer, a number of its
    next decoded record that is rejected, or None: it seals."""
    found: list[tuple[str, int, int]] = []
    path = folder / "states-1.jsonl"
    bad = {event for event in said if isinstance(event, int)}

    def decode(stream: StreamId, bodies: Any, first: int, *_: Any) -> Any:
        rejects = [
            (n - first, "bad", None) for n in sorted(bad) if first <= n < first + len(bodies)
        ]
        return SimpleNamespace(count=0, rows=None, rejects=rejects, missing=None)

    with path.open("ab", buffering=0) as file:
        info = [
            LaneStream(
                stream=scope.stream,  # type: ignore[arg-type]
                disposition=WriteDisposition(mode=DestinationSyncMode.append),
                schema_version=1,
                generation=1,
                fills_generation=False,
            )
            for scope in (ONE, TWO)
        ]
        log = MemoryLog()
        sealer = Sealer(
            log, epoch=1, lane=0, streams=info, decode=decode, clock=lambda: 0.0,
            host=EveryState(file.write),
        )  # fmt: skip
        for event in said:
            match event:
                case Batch():
                    sealer.batch(event)
                case Reject():
                    sealer.reject(event)
                case State():
                    sealer.state(event)
                case None:
                    sealer.seal()
        sealer.finish(clean=True)
    echo = Echo(lambda *told: found.append(told))
    echo.follow(path)
    echo.rest()
    read = [sum(s.read for s in segment.slices) for segment in log.segments()]
    assert sum(t + r for _, t, r in found) <= sum(read)
    return found


def rows(of: StateScope, count: int) -> Batch:
    assert of.stream is not None
    return Batch(of.stream, [b"{}"] * count, [0] * count)


def test_l8_a_state_goes_back_with_what_became_of_the_records_before_it(tmp_path: Path) -> None:
    """Each of several states between two seals, whatever was rejected where."""
    torn = Reject(ONE.stream, "torn", b"x")
    assert counted(
        tmp_path, rows(ONE, 5), State(ONE, "a"), rows(ONE, 5), 4, 5, 9, torn, State(ONE, "b"),
        State(ONE, "c"), None, rows(ONE, 3), 11, State(ONE, "d"), rows(ONE, 2),
    ) == [("a", 4, 1), ("b", 3, 3), ("c", 0, 0), ("d", 2, 1)]  # fmt: skip


def test_l8_a_shared_state_counts_every_stream_and_a_streams_own_that_stream(
    tmp_path: Path,
) -> None:
    shared = State(SHARED, "s")
    assert counted(tmp_path, rows(ONE, 2), rows(TWO, 3), shared, None, rows(TWO, 1), shared) == [
        ("s", 5, 0), ("s", 1, 0),
    ]  # fmt: skip
    (tmp_path / "states-1.jsonl").unlink()
    own = counted(tmp_path, rows(ONE, 2), rows(TWO, 3), State(TWO, "t"), State(ONE, "o"))
    assert sorted(own) == [("o", 2, 0), ("t", 3, 0)]


# -- the input


def _unbroken(error: OSError) -> None:
    raise AssertionError(error)


def fed(given: Iterable[bytes], *, wait: float = 0.0) -> bytes:
    """What a reader of the pipe gets of an input."""
    out, into = os.pipe()

    def feed() -> None:
        with os.fdopen(into, "wb") as file:
            for block in given:
                file.write(block)

    feeder = threading.Thread(target=feed, daemon=True)
    feeder.start()
    try:
        with input_pipe(_unbroken, out) as pipe:
            assert pipe.stat().st_mode & 0o777 == 0o600
            time.sleep(wait)
            got = pipe.read_bytes()
        assert not pipe.exists()
        feeder.join(10)
        return got
    finally:
        os.close(out)


def test_the_input_comes_whole_and_ends() -> None:
    blocks = [os.urandom(1 << 20) for _ in range(3)]
    assert fed(blocks, wait=0.2) == b"".join(blocks)


def test_no_input_is_an_empty_one() -> None:
    assert fed([]) == b""


def test_a_reader_that_leaves_ends_the_pump() -> None:
    """L11: nothing waits for a lane that is gone."""
    out, into = os.pipe()
    try:
        with input_pipe(_unbroken, out) as pipe:
            (pump,) = (t for t in threading.enumerate() if t.name == "input")
            reader = os.open(pipe, os.O_RDONLY)
            os.write(into, b"x")
            assert os.read(reader, 1) == b"x"
            os.close(reader)
            os.write(into, b"more")
            pump.join(10)
            assert not pump.is_alive()
    finally:
        os.close(into)
        os.close(out)


def test_an_input_that_nobody_reads_is_let_go() -> None:
    out, into = os.pipe()
    with input_pipe(_unbroken, out):
        (pump,) = (t for t in threading.enumerate() if t.name == "input")
    pump.join(10)
    os.close(into)
    os.close(out)
    assert not pump.is_alive()


def test_an_input_that_cannot_be_read_is_not_one_that_ended_L6(tmp_path: Path) -> None:
    """Its end would publish what has come so far."""
    heard: list[OSError] = []
    folder = os.open(tmp_path, os.O_RDONLY)  # reading it is EISDIR
    with input_pipe(heard.append, folder) as pipe:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        until = time.monotonic() + 10
        while not heard and time.monotonic() < until:
            time.sleep(0.02)
        with pytest.raises(BlockingIOError):  # b"" would be the end
            os.read(reader, 1)
        os.close(reader)
    os.close(folder)
    assert [type(e) for e in heard] == [IsADirectoryError]


def test_a_master_elsewhere_is_refused() -> None:
    import msgspec

    pipeline = pipeline_from_arguments("singer:input", "delta:./lake")
    refuse_remote(pipeline)
    far = msgspec.structs.replace(pipeline.spark, master="spark://host:7077")
    with pytest.raises(ConfigError) as refused:
        refuse_remote(msgspec.structs.replace(pipeline, spark=far))
    assert refused.value.code == "config.serve"


# -- refreshes


def planned(name: str, mode: DestinationSyncMode) -> PlannedStream:
    stream = Stream(id=StreamId(None, name), json_schema={})
    configured = ConfiguredStream(
        stream=stream, sync_mode=SyncMode.incremental, destination_sync_mode=mode
    )
    return PlannedStream(
        configured=configured,
        schema=RowSchema(()),
        columns={},
        disposition=WriteDisposition(mode=mode),
        table=TableName(None, name),
    )


def refreshing(numbers: dict[str, int]) -> dict[StreamId, HostGeneration]:
    return {
        StreamId(None, name): HostGeneration(generation=n, replaces=True)
        for name, n in numbers.items()
    }


def settled(store: MemoryStore, refreshes: dict[str, int], **modes: str) -> dict[str, Any]:
    """name -> (mode, replaces, fills a generation)."""
    served = ServedInput(
        protocol="airbyte",
        catalog=Catalog(()),
        say=unheard,
        pipe=Path(),
        generations=refreshing(refreshes),
    )
    streams = tuple(planned(n, DestinationSyncMode(m)) for n, m in modes.items())
    plan = StreamsPlan(streams=streams, lanes=1, notes=(), gone=())
    found = served.settled(plan, store.remembered("p")).streams
    return {
        s.id.name: (s.disposition.mode.value, s.disposition.replaces, s.configured.fills_generation)
        for s in found
    }


def test_l6_a_refresh_replaces_until_it_was_seen() -> None:
    store = MemoryStore()
    lease = store.acquire("p", this_holder("r"), 60)
    modes = {"a": "append", "d": "append_dedup", "o": "overwrite", "plain": "append"}
    numbers = {"a": 3, "d": 3, "o": 3}
    replaced = {
        "a": ("append", True, True),
        "d": ("append_dedup", True, True),
        "o": ("overwrite", True, True),
        "plain": ("append", False, False),
    }
    assert settled(store, numbers, **modes) == replaced
    served = ServedInput(
        protocol="airbyte", catalog=Catalog(()), say=unheard, pipe=Path(),
        generations=refreshing(numbers),
    )  # fmt: skip
    for name in modes:
        served.published(store, lease)(StreamId(None, name))
    assert settled(store, numbers, **modes) == {
        "a": ("append", False, False),
        "d": ("append_dedup", False, False),
        "o": ("append", False, False),
        "plain": ("append", False, False),
    }
    assert settled(store, dict.fromkeys(numbers, 4), **modes) == replaced


def test_metadata_columns_have_the_hosts_numbers_and_the_ledger_its_own() -> None:
    """Protocol, ConfiguredAirbyteStream: rows of two generations that are merged can be told apart
    by the host's numbers."""
    given = HostGeneration(generation=41, sync=7)
    served = ServedInput(
        protocol="airbyte",
        catalog=Catalog(()),
        say=unheard,
        pipe=Path(),
        generations={StreamId(None, "a"): given},
    )
    streams = tuple(planned(name, DestinationSyncMode.append) for name in "ab")
    plan = StreamsPlan(streams=streams, lanes=1, notes=(), gone=())
    a, b = served.settled(plan, MemoryStore().remembered("p")).streams
    assert (a.disposition.sync_id, a.disposition.generation_id) == (7, 41)
    assert b.disposition == planned("b", DestinationSyncMode.append).disposition
    for stream, number in ((a, 41), (b, 2)):
        load = Load(
            stream=stream.id,
            disposition=stream.disposition,
            segments=(),
            parts=(),
            schema_version=1,
            generation=2,
            number=1,
            key="k",
        )
        assert (load.generation, load.generation_id) == (2, number)


def test_l6_the_end_of_an_input_completes_only_what_need_not_be_said() -> None:
    """A stream that must be told complete waits for the word, in the ledger's eyes too."""
    names = ["said", "unsaid", "free"]
    log = MemoryLog()
    sealer = Sealer(
        log,
        epoch=1,
        lane=0,
        streams=[
            LaneStream(
                stream=StreamId(None, name),
                disposition=WriteDisposition(mode=DestinationSyncMode.append, replaces=True),
                schema_version=1,
                generation=1,
                fills_generation=True,
                requires_complete_status=name != "free",
            )
            for name in names
        ],
        decode=lambda *_: None,  # type: ignore[arg-type, return-value]
        clock=lambda: 0.0,
    )
    for name in names:
        sealer.reject(Reject(StreamId(None, name), "bad", b"x"))
    sealer.refreshed(StreamId(None, "said"), 1)
    ended = sealer.finish(clean=True)
    assert {s.name: whole for s, whole in ended.items()} == {
        "said": True,
        "unsaid": False,
        "free": True,
    }
    found = decide(log.segments(), set())
    ready = {load.stream.name: load.replaces for g in found.ready for load in g.loads}
    assert ready == {"said": True, "free": True}
    assert [s.name for s in found.waiting] == ["unsaid"]


@pytest.mark.parametrize("served", [True, False])
def test_l6_a_host_that_says_that_it_began_has_a_word_for_the_end(served: bool) -> None:
    """The end of an input is no exit code 0: a source behind the host may have died."""
    name = StreamId(None, "s")
    info = LaneStream(
        stream=name,
        disposition=WriteDisposition(mode=DestinationSyncMode.overwrite),
        schema_version=1,
        generation=1,
        fills_generation=True,
    )
    sealer = Sealer(
        MemoryLog(),
        epoch=1,
        lane=0,
        streams=[info],
        decode=lambda *_: None,  # type: ignore[arg-type, return-value]
        clock=lambda: 0.0,
        any_status=served,
    )
    sealer.status(StreamStatus(name, Status.started))
    assert sealer.finish(clean=True) == {name: not served}


def test_l6_a_load_of_an_earlier_run_is_no_refresh_of_this_one(tmp_path: Path) -> None:
    """Its host gets no answer, so that it sends everything again, which must replace."""
    seen: list[StreamId] = []
    echo = Echo(unheard, seen.append)
    load = Load(
        stream=StreamId(None, "s"),
        disposition=WriteDisposition(mode=DestinationSyncMode.append),
        segments=(),
        parts=(),
        schema_version=1,
        generation=1,
        replaces=True,
        number=1,
        key="k",
        read=1,
        rejected=0,
        filtered=0,
    )
    echo.loaded(load)
    assert seen == []
    echo.follow(tmp_path / "states-1.jsonl")
    echo.loaded(load)
    assert seen == [StreamId(None, "s")]

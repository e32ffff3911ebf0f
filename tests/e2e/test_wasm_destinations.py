"""WebAssembly destinations on Spark: their failures, retries, dead letters, keys, limits (issue 5;
the protocol, sections 4.2, 5, 7 and 9). The source is the scripted guest, the destination one that
tells a TCP peer of the test everything and does what it answers.
"""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connector_sites import cancelled_when
from pipelines import NAME
from pipelines import Heard as Silent
from wasm_ends import (
    INCREMENTAL,
    REPLACE,
    UPSERT,
    Ends,
    Gate,
    Heard,
    Peer,
    always,
    obedient,
    seal_each_state,
)
from wasm_sites import MANIFEST, StageEvent, component

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline

import built  # isort: skip  (its folder is on the path now)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ALL = list(range(1, 101))
MakeEnds = Callable[..., Ends]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame for each checkpoint of the source."""
    seal_each_state(monkeypatch)


@pytest.fixture
def ends(tmp_path: Path, shared_spark: "SparkSession") -> MakeEnds:
    """``ends(to=...)``: from the scripted source into a destination, else the obedient one."""
    del shared_spark
    made: list[Ends] = []

    def make(to: bytes | str | None = None, binary: bytes | None = None) -> Ends:
        folder = tmp_path / f"ends-{len(made)}"
        made.append(Ends(folder, binary=binary or component(MANIFEST), to=to or obedient()))
        return made[-1]

    return make


def hundred(stream: str = "s0", *, step: int = 10, more: list[str] | None = None) -> dict[str, Any]:
    """A script of 100 rows, a frame and a checkpoint each ``step``."""
    told = StageEvent()
    commands: list[str] = []
    for first in range(1, 101, step):
        commands += [told.rows(first, first + step - 1), f"at {first + step - 1}"]
    return told.config({stream: [*commands, *(more or [])]})


def times(n: int, letter: str, kind: str = "F") -> Callable[[Heard], str]:
    """Each of the first ``n`` runs gets this letter for its third frame (or its end), the others
    checkpoints."""
    frames: dict[int, int] = {}

    def answer(heard: Heard) -> str:
        if heard.kind == "F":
            frames[heard.run] = frames.get(heard.run, 0) + 1
        if heard.run <= n and heard.kind == kind and (kind != "F" or frames[heard.run] == 3):
            return letter
        return "c" if heard.kind == "F" else "k"

    return answer


def again(ran: Any) -> list[str]:
    return [n for n in ran.notes if "tried again" in n]


# -- retries (section 5; issue 5, part 7)


def test_l8_a_failure_that_may_pass_is_tried_again_by_a_new_conversation(ends: MakeEnds) -> None:
    """What it acknowledged is not sent again; the rest is, in order, and told."""
    here = ends()
    with Peer(times(1, "f")) as peer:
        ran = here.sync(hundred(), peer.config)
    assert (ran.status, ran.exit_code) == ("succeeded", 0), ran.error
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    (note,) = again(ran)
    assert "OBEYED" in note and "the peer wants it" in note
    first, second = peer.seqs(1), peer.seqs(2)
    assert sorted({*first, *second}) == ALL
    assert second == list(range(second[0], 101)), "in order, without a hole"
    twice = set(first) & set(second)
    assert len(twice) <= ran.stream("s0").sent_again
    assert ran.stream("s0").written >= len(first) + len(second)
    assert here.cursors() == {"s0": "100"}
    third = here.sync(StageEvent().config({"s0": ["context"]}), peer.config)
    assert third.exit_code == 0, third.error
    assert third.stream("s0").sent_again == 0


@pytest.mark.parametrize("defaults", [UPSERT, REPLACE], ids=["upsert", "replace"])
def test_a_write_that_is_one_transaction_is_tried_again_whole(
    ends: MakeEnds, defaults: dict[str, str]
) -> None:
    here = ends()
    with Peer(times(2, "f", kind="E")) as peer:
        ran = here.sync(hundred(), peer.config, defaults)
    assert ran.exit_code == 0, ran.error
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    assert len(again(ran)) in (1, 2), "the same words are one note"
    if defaults is REPLACE:
        assert all(peer.seqs(run) == ALL for run in (1, 2, 3))
        assert len(peer.of("E")) == 3
    assert set(peer.seqs()) == set(ALL)


def test_of_several_streams_what_is_written_is_not_sent_again(ends: MakeEnds) -> None:
    """The one that failed is, as often as it takes."""
    here = ends()
    told = StageEvent()
    script = {s: [told.rows(1, 20), "at 20"] for s in ("s0", "s1", "s2")}
    failures = {"s1": 1}
    names: dict[int, str] = {}

    def answer(heard: Heard) -> str:
        if heard.kind == "B":
            names[heard.run] = json.loads(heard.body)["stream_name"]
        if heard.kind == "E" and failures.get(names[heard.run], 0):
            failures[names[heard.run]] -= 1
            return "f"
        return "k"

    with Peer(answer) as peer:
        ran = here.sync(told.config(script), peer.config, REPLACE)
    assert ran.exit_code == 0, ran.error
    assert sorted(peer.streams()) == ["s0", "s1", "s1", "s2"]
    assert [ran.stream(s).sent_again for s in script] == [0, 20, 0]


def test_retries_end_with_max_retries_and_the_next_run_goes_on(ends: MakeEnds) -> None:
    here = ends(binary=built.c_source().read_bytes())
    rows = {"rows": 100, "batch_rows": 10}
    with Peer(times(99, "f")) as peer:
        ran = here.sync(rows, peer.config, resources={"max_retries": 2}, load=SMALL)
    assert (ran.status, ran.exit_code) == ("failed", 5)
    runs = max(h.run for h in peer.heard)
    assert runs == 3
    assert ran.error["code"] == "destination.transient_db"
    assert ran.stream("numbers").committed < 100
    at = int(here.cursors().get("numbers", "0"))
    with Peer(always()) as later:
        second = here.sync(rows, later.config)
    assert second.exit_code == 0, second.error
    assert here.cursors() == {"numbers": "100"}
    heard = {*peer.seqs(), *later.seqs()}
    assert heard == set(ALL)
    assert min(later.seqs()) == at + 1, "what it had acknowledged is not sent again"


SMALL: dict[str, Any] = {"max_pending_bytes": 1, "max_pending_time": 0.1}


@pytest.mark.parametrize(
    "config",
    [{"retryable": False}, {"safe": False}, {"commit": 2}, {"commit": 3}],
    ids=["not retryable", "not safe", "after commit, unknown", "after commit"],
)
def test_what_may_not_be_tried_again_is_not_and_all_its_fields_are_kept(
    ends: MakeEnds, config: dict[str, Any]
) -> None:
    here = ends()
    with Peer(times(1, "f")) as peer:
        ran = here.sync(hundred(), {**peer.config, "after_ms": 10, **config})
    assert (ran.exit_code, ran.error["code"]) == (5, "destination.transient_db")
    assert len(peer.of("B")) == 1
    assert not again(ran)
    fields = ran.error["connector"]
    commits = {2: "after_commit_unknown", 3: "after_commit_confirmed"}
    wanted = {
        "category": "transient_db",
        "code": "OBEYED",
        "message": "the peer wants it",
        "retryable": config.get("retryable", True),
        "safe_to_retry": config.get("safe", True),
        "retry_after_ms": 10,
        "backoff_class": "fast",
    }
    assert {k: fields.get(k) for k in wanted} == wanted, fields
    assert fields.get("commit_state") == commits.get(config.get("commit", 0)), fields
    assert ran.error["stream"] == "s0"


def test_retry_after_is_waited_for(ends: MakeEnds) -> None:
    here = ends()
    with Peer(times(1, "f")) as peer:
        ran = here.sync(hundred(), {**peer.config, "after_ms": 1500})
    assert ran.exit_code == 0, ran.error
    failed_at = max(h.at for h in peer.heard if h.run == 1)
    assert peer.of("B", 2)[0].at - failed_at >= 1.5


def halves(told: StageEvent, gate: Gate, *, step: int = 10) -> dict[str, Any]:
    """100 rows; the gate lies before the second 50."""
    commands: list[str] = []
    for first in range(1, 101, step):
        commands += ["wait"] if first == 51 else []
        commands += [told.rows(first, first + step - 1), f"at {first + step - 1}"]
    return told.config({"s0": commands}, **gate.config)


def test_it_is_tried_again_while_the_source_reads(ends: MakeEnds) -> None:
    """What the source gives meanwhile comes after what was not acknowledged."""
    here = ends()
    with Gate() as gate:

        def answer(heard: Heard) -> str:
            if heard.run == 2:
                gate.open_component.set()
            if heard.run == 1 and heard.kind == "F":
                return "f"
            return "c" if heard.kind == "F" else "k"

        with Peer(answer) as peer:
            ran = here.sync(halves(StageEvent(), gate), peer.config, load=SMALL)
    assert ran.exit_code == 0, ran.error
    assert ran.counts("s0") == ("complete", 100, 100, 0)
    assert gate.reached.is_set()
    assert list(dict.fromkeys(peer.seqs())) == ALL
    assert len(again(ran)) == 1
    assert here.cursors() == {"s0": "100"}


@pytest.mark.parametrize("reading", [False, True], ids=["at the end", "while the source reads"])
def test_l11_a_cancelled_run_does_not_wait_for_another_try(
    ends: MakeEnds, tmp_path: Path, reading: bool
) -> None:
    here, failed = ends(), tmp_path / "failed"
    with Gate() as gate:
        if not reading:
            gate.open_component.set()

        def answer(heard: Heard) -> str:
            if heard.kind == "F":
                threading.Timer(1, failed.touch).start()
                return "f"
            return "k"

        began = time.monotonic()
        with Peer(answer) as peer, cancelled_when(failed):
            told = {**peer.config, "after_ms": 120_000}
            ran = here.sync(halves(StageEvent(), gate), told, load=SMALL)
        assert time.monotonic() - began < 60
    assert ran.exit_code == 7 and ran.status == "cancelled", ran.report
    with Peer(always()) as later:
        second = here.sync(hundred(), later.config, INCREMENTAL)
    assert second.exit_code == 0, second.error
    assert {*later.seqs()} == set(ALL)


# -- what ends a run for good (section 5; L10, L11)


@pytest.mark.parametrize(
    ("letter", "section", "code"),
    [
        ("t", {}, "destination.crashed"),
        ("s", {"limits": {"timeout_seconds": 1}}, "destination.timeout"),
        ("w", {}, "destination.ended_early"),
        ("k", {"permissions": {"network": {"allowed_hosts": []}}}, "destination.permission"),
    ],
    ids=["trap", "endless loop", "an early end", "a denied host"],
)
def test_what_ends_a_write_is_named_and_the_next_run_goes_on(
    ends: MakeEnds, letter: str, section: dict[str, Any], code: str
) -> None:
    here = ends()
    with Peer(times(99, letter)) as peer:
        ran = here.sync(hundred(), peer.config, destination=section, load=SMALL)
    assert (ran.exit_code, ran.error["code"]) == (5, code), ran.error
    assert ran.error["hint"] and ran.error["stream"] == "s0"
    assert not again(ran)
    at = int(here.cursors().get("s0", "0"))
    assert set(range(1, at + 1)) <= set(peer.seqs()), "no state is ahead"
    with Peer(always()) as later:
        second = here.sync(hundred(), later.config)
    assert second.exit_code == 0, second.error
    assert {*peer.seqs(), *later.seqs()} == set(ALL)
    assert here.cursors() == {"s0": "100"}


@pytest.mark.parametrize(("category", "retried"), [("auth", False), ("rate_limit", True)])
def test_a_failure_of_the_c_destination_has_its_category(
    ends: MakeEnds, category: str, retried: bool
) -> None:
    """The example, unmodified; a retryable failure is tried again once here, and fails again. Every
    category: ``tests/examples/test_c_examples.py``."""
    here = ends(built.c_destination().read_bytes(), built.c_source().read_bytes())
    config = {"checkpoint_frames": 0, "fail_after": 1, "fail_category": category}
    rows = {"rows": 100, "batch_rows": 50}
    ran = here.sync(rows, config, resources={"max_retries": 1, "parallelism": 1})
    assert (ran.exit_code, ran.error["code"]) == (5, f"destination.{category}"), ran.error
    assert ran.error["connector"]["code"] == "AS_ASKED"
    assert bool(again(ran)) is retried, ran.notes
    after = here.sync(rows, {})
    assert after.exit_code == 0, after.error
    assert after.stream("numbers").committed == 100


# -- dead letters (issue 5, part 13; L8)


@pytest.mark.parametrize("how", ["dlq", "skip", "fail"])
def test_l8_dead_letters_of_a_destination(ends: MakeEnds, how: str) -> None:
    here = ends()
    with Peer(always("D")) as peer:
        ran = here.sync(hundred(), peer.config, destination={"on_data_error": how})
    if how == "fail":
        assert (ran.exit_code, ran.error["code"]) == (5, "destination.data"), ran.error
        assert "not liked" in ran.error["message"]
        assert here.cursors() == {}
        return
    assert ran.exit_code == 0, ran.error
    letters = 10 if how == "dlq" else 0
    assert ran.counts("s0") == ("complete", 100, 90, letters)
    assert ran.stream("s0").filtered == 10 - letters
    rows = here.rejects()
    assert [(r["name"], r["reason"], json.loads(r["bytes"])) for r in rows] == [
        ("s0", "data: not liked", {"frame": n + 1}) for n in range(letters)
    ]
    shown = here.cli("rejects", NAME, "--json")
    assert (shown.code, len(shown.json)) == (0, letters), shown.err


def test_l8_letters_of_what_is_sent_again_count_once(ends: MakeEnds) -> None:
    """What was not acknowledged comes again, and so do its letters."""
    here = ends()
    frames: list[int] = []

    def answer(heard: Heard) -> str:
        frames.extend([heard.run] * (heard.kind == "F"))
        if heard.run == 1 and frames.count(1) == 5:
            return "f"
        return "d" if heard.kind == "F" else "k"

    with Peer(answer) as peer:
        ran = here.sync(hundred(), peer.config, destination={"on_data_error": "dlq"})
    assert ran.exit_code == 0, ran.error
    assert max(h.run for h in peer.heard) == 2
    assert ran.counts("s0") == ("complete", 100, 90, 10)
    assert len(here.rejects()) == 10


# -- a connector's own keys (issue 5, part 5)


def keys(here: Ends) -> dict[str, str]:
    with here.store() as store:
        found = store.connector_keys(NAME)
    return {f"{p.scope}:{p.key}": value for p, value in found.items()}


def test_keys_become_durable_with_the_checkpoint(ends: MakeEnds) -> None:
    """What a conversation counted after its last acknowledgement is gone with it."""
    here = ends()
    with Peer(always()) as peer:
        ran = here.sync(hundred(), peer.config)
    assert ran.exit_code == 0, ran.error
    frames = str(len(peer.of("F")))
    assert keys(here) == {"stream:frames": frames, "pipeline:total": frames}
    with Peer(times(1, "t")) as broken:
        told = StageEvent()
        config = told.config({"s0": [told.rows(101, 110), "at 110", told.rows(111, 120), "at 120",
                                     told.rows(121, 130), "at 130"]})  # fmt: skip
        failed = here.sync(config, broken.config)
    if failed.exit_code:
        covered = (int(here.cursors()["s0"]) - 100) // 10
        assert keys(here)["stream:frames"] == str(int(frames) + covered)
    before = keys(here)
    dry = here.sync(hundred(), {"host": "127.0.0.1", "port": 9}, dry_run=True)
    assert dry.exit_code == 0, dry.error
    assert keys(here) == before, "a dry run leaves none"


def test_keys_of_a_failed_conversation_are_counted_once(ends: MakeEnds) -> None:
    here = ends()
    with Peer(times(1, "f", kind="E")) as peer:
        ran = here.sync(hundred(), peer.config, REPLACE)
    assert ran.exit_code == 0, ran.error
    assert len(peer.of("F", 1)) == len(peer.of("F", 2)) > 0
    frames = str(len(peer.of("F", 2)))
    assert keys(here) == {"stream:frames": frames, "pipeline:total": frames}


# -- plan says what a kill may repeat (issue 5, part 6)


@pytest.mark.parametrize(
    ("defaults", "words"),
    [
        (INCREMENTAL, ("append", "since the last checkpoint", "again")),
        (UPSERT, ("upsert", "repeats nothing")),
        (REPLACE, ("replace", "repeats nothing")),
    ],
    ids=["append", "upsert", "replace"],
)
def test_plan_says_what_a_kill_may_repeat(
    ends: MakeEnds, defaults: dict[str, str], words: tuple[str, ...]
) -> None:
    here = ends()
    section = {"use": here.to, "config": {"host": "127.0.0.1", "port": 9}}
    path = here.write(config=hundred(), defaults=defaults, destination=section)
    pipeline = load_pipeline(path, env={})
    notes = plan_pipeline(pipeline, here.home, observer=Silent())["notes"]
    assert [n for n in notes if all(w in n for w in words)], notes

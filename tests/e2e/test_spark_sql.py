"""spark-sql from the source to the table: exact over everything that a run has read (issue 5, part
12), repeated as it stands after a crash (L3), counted by what it covers (L8).

The stub's record with the number ``seq`` has the id ``seq % key_space``, or ``seq``.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from connector_sites import Push
from e2e_harness import FEW_PARTITIONS, HERE
from pipelines import MASTER, Ran, Site

import warm_spark
from penstock.engine.plan import lane_jobs
from penstock.engine.run import wiring
from penstock.engine.specs.lane import LaneBounds
from penstock.engine.specs.plan import SyncPlan
from penstock.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
APPEND = {"destination_sync_mode": "append"}
DEDUP = {"destination_sync_mode": "append_dedup"}
COUNTS = "SELECT id, count(*) AS n, max(seq) AS seq FROM input GROUP BY id"
ONE = {"streams": 1}


def sql(*texts: str) -> list[dict[str, Any]]:
    return [{"use": "spark-sql", "config": {"query": text}} for text in texts]


def picked(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[n] for n in names) for row in rows)


def written(ran: Ran, stream: str) -> tuple[str, int, int, int]:
    s = ran.stream(stream)
    return s.status, s.read, s.committed, s.written


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state is a segment with parts of its own, and whatever may load does so at once."""
    whole = wiring.sync_plan

    def sync_plan(*args: Any, **kw: Any) -> SyncPlan:
        eager = {"load_bytes": 1, "load_seconds": 0.0, "scan_seconds": 0.05, "poll_seconds": 0.05}
        return msgspec.structs.replace(whole(*args, **kw), **eager)

    bounds = partial(LaneBounds, part_bytes=1, seal_bytes=1, seal_seconds=0)
    monkeypatch.setattr(lane_jobs, "LaneBounds", bounds)
    monkeypatch.setattr(wiring, "sync_plan", sync_plan)


# -- exact over the stream


@pytest.mark.usefixtures("small")
def test_group_by_over_two_lanes_and_many_segments_has_each_key_once(site: MakeSite) -> None:
    here = site("parquet", records=300, state_every=10, key_space=7, delay=0.001)
    ran = here.run(defaults=APPEND, transforms=sql(COUNTS), lanes=2)
    wanted = Counter(seq % 7 for seq in range(1, 301))
    for stream in ("s0", "s1"):
        assert picked(here.rows(stream), "id", "n") == sorted(wanted.items())
        assert written(ran, stream) == ("complete", 300, 300, 7)
    assert here.saved() == {"s0": {"seq": 300}, "s1": {"seq": 300}}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("query", "names", "wanted"),
    [
        ("SELECT DISTINCT id FROM input", ("id",), [(i,) for i in range(9)]),
        (
            "SELECT id, seq FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq) AS n "
            "FROM input) WHERE n = 2",
            ("id", "seq"),
            sorted((s % 9, s) for s in range(9 + 1, 18 + 1)),
        ),
        (
            "SELECT a.seq, b.seq AS next FROM input a JOIN input b ON b.seq = a.seq + 1",
            ("seq", "next"),
            [(s, s + 1) for s in range(1, 100)],
        ),
        ("SELECT seq FROM input ORDER BY seq DESC LIMIT 3", ("seq",), [(98,), (99,), (100,)]),
    ],
)  # fmt: skip
def test_what_compares_rows_is_exact(
    site: MakeSite, query: str, names: tuple[str, ...], wanted: list[tuple[Any, ...]]
) -> None:
    here = site(streams=1, records=100, state_every=5, key_space=9)
    here.run(defaults=APPEND, transforms=sql(query))
    assert picked(here.rows("s0", names[0]), *names) == wanted


def test_several_follow_each_other_behind_a_batch_transform(site: MakeSite) -> None:
    here = site(streams=1, key_space=10)
    batch = {"use": "transform-sql", "config": {"query": "SELECT id, seq FROM input WHERE id > 4"}}
    top = "SELECT max(n) AS top, count(*) AS ids FROM input"
    ran = here.run(defaults=APPEND, transforms=[batch, *sql(COUNTS, top)])
    assert picked(here.rows("s0", "top"), "top", "ids") == [(10, 5)]
    stream = ran.stream("s0")
    assert (stream.read, stream.committed, stream.filtered, stream.written) == (100, 50, 50, 1)


def test_rows_have_the_metadata_of_any_other(site: MakeSite) -> None:
    here = site(streams=1)
    here.run(defaults=OVERWRITE, transforms=sql("SELECT id, name, amount FROM input"))
    rows = here.rows("s0", "id")
    assert len({row["_airbyte_raw_id"] for row in rows}) == 100
    assert len({row["_airbyte_extracted_at"] for row in rows}) == 1
    assert {row["_airbyte_generation_id"] for row in rows} == {1}
    assert all(row["_airbyte_meta"]["changes"] == [] for row in rows)
    assert set(rows[0]) == {
        "id", "name", "amount", "_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta",
        "_airbyte_generation_id",
    }  # fmt: skip


# -- modes


def test_the_next_run_is_exact_over_its_own_rows(site: MakeSite) -> None:
    here = site(streams=1, key_space=5)
    here.run(defaults=APPEND, transforms=sql(COUNTS))
    second = here.run({"records": 110}, defaults=APPEND, transforms=sql(COUNTS))
    assert written(second, "s0") == ("complete", 10, 10, 5)
    assert picked(here.rows("s0"), "n") == [(2,)] * 5 + [(20,)] * 5
    third = here.run({"records": 110}, defaults=APPEND, transforms=sql(COUNTS))
    assert third.stream("s0").written == 0 and len(here.rows("s0")) == 10


def test_append_dedup_merges_the_answers_by_key(site: MakeSite) -> None:
    here = site("delta", streams=1, key_space=5)
    first = here.run(defaults=DEDUP, transforms=sql(COUNTS))
    assert written(first, "s0") == ("complete", 100, 100, 5)
    second = here.run({"records": 103}, defaults=DEDUP, transforms=sql(COUNTS))
    assert picked(here.rows("s0"), "id", "n", "seq") == [
        (0, 20, 100), (1, 1, 101), (2, 1, 102), (3, 1, 103), (4, 20, 99)
    ]  # fmt: skip
    assert second.stream("s0").written == 3


def test_append_dedup_without_a_cursor_takes_what_was_loaded_last(site: MakeSite) -> None:
    here = site("delta", streams=1, key_space=5)
    query = "SELECT id, count(*) AS n FROM input GROUP BY id"
    first = here.run(defaults=DEDUP, transforms=sql(query))
    first.noted("no cursor seq", "loaded last")
    here.run({"records": 102}, defaults=DEDUP, transforms=sql(query))
    assert picked(here.rows("s0", "id"), "id", "n") == [(0, 20), (1, 1), (2, 1), (3, 20), (4, 20)]


def test_a_full_refresh_replaces_the_answer_also_by_that_over_nothing(site: MakeSite) -> None:
    here = site("delta", streams=1)
    query = "SELECT count(*) AS n, sum(seq) AS total FROM input"
    here.run(defaults=OVERWRITE, transforms=sql(query))
    assert picked(here.rows("s0", "n"), "n", "total") == [(100, 5050)]
    empty = here.run({"records": 0}, defaults=OVERWRITE, transforms=sql(query))
    assert picked(here.rows("s0", "n"), "n", "total") == [(0, None)]
    assert written(empty, "s0") == ("complete", 0, 0, 1)


def test_an_answer_without_rows_is_a_table_without_rows(site: MakeSite) -> None:
    here = site(streams=1)
    ran = here.run(defaults=APPEND, transforms=sql("SELECT id FROM input WHERE id < 0"))
    assert written(ran, "s0") == ("complete", 100, 100, 0)
    assert here.rows("s0", "id") == [] and here.saved() == {"s0": {"seq": 100}}


def test_many_small_streams_come_out_whole(site: MakeSite) -> None:
    here = site(streams=6, records=20, key_space=4)
    ran = here.run(defaults=APPEND, transforms=sql(COUNTS))
    for index in range(6):
        assert picked(here.rows(f"s{index}"), "id", "n") == [(i, 5) for i in range(4)]
        assert ran.stream(f"s{index}").written == 4


def test_a_schema_change_of_the_answer_evolves_the_table(site: MakeSite) -> None:
    here = site(streams=1)
    here.run(defaults=APPEND, transforms=sql("SELECT id, seq, 1 AS `a b` FROM input"))
    here.run(
        {"records": 101}, defaults=APPEND,
        transforms=sql("SELECT id, seq, 1.5D AS `a b`, 'x' AS more FROM input"),
    )  # fmt: skip
    rows = here.rows("s0")
    assert [(r["a_b"], r["more"]) for r in rows[-2:]] == [(1.0, None), (1.5, "x")]


# -- what is refused, and when


def test_plan_says_that_columns_are_not_known_and_starts_no_jvm(quiet: Site) -> None:
    path = quiet.write(ONE, transforms=sql(COUNTS))
    answer = quiet.cli("plan", str(path), "--json", JAVA_HOME="/nowhere").json
    stream = answer["streams"][0]
    assert answer["problems"] == []
    assert (stream["columns"], stream["loads"]) == ([], "at the end of the sync")
    assert any("known when Spark has read the query" in note for note in answer["notes"])


def test_plan_tells_every_fault_of_the_list(quiet: Site) -> None:
    wrong = [*sql("DROP TABLE x"), {"use": "transform-validate", "config": {"rules": []}}]
    path = quiet.write(ONE, transforms=wrong)
    problems = quiet.cli("plan", str(path), "--json").json["problems"]
    assert any("not a query (DROP)" in p for p in problems)
    assert any("comes after a spark-sql" in p for p in problems)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nope FROM input", "`nope` cannot be resolved"),
        ("SELECT id FROM input GROUP YB id", "Syntax error"),
        ("SELECT seq FROM input", "the primary key id is not a typed column"),
    ],
)
def test_a_bad_query_is_told_before_the_source_is_asked(
    site: MakeSite, query: str, words: str
) -> None:
    here = site()
    ran = here.run(defaults=DEDUP, transforms=sql(query))
    assert (ran.status, ran.exit_code) == ("failed", 2)
    assert ran.error["code"] == "transform.query" and words in ran.error["message"]
    assert "s0, s1" in ran.error["message"] and "\n" not in ran.error["message"]
    assert here.journal() == [] and here.tables() == []


def test_a_destination_connector_is_refused(tmp_path: Path) -> None:
    push = Push(Site(tmp_path / "push"), "airbyte")
    with pytest.raises(ConfigError) as found:
        push.run(ONE, transforms=sql(COUNTS))
    assert found.value.code == "transform.destination" and found.value.hint
    assert "transform-sql" in found.value.hint and "transforms[0]" in found.value.message


def test_a_query_that_fails_on_rows_keeps_them_until_it_is_mended(site: MakeSite) -> None:
    here = site(streams=2, key_space=3)
    bad = "SELECT id, CAST(name AS INT) AS n FROM input"
    ran = here.run(defaults=APPEND, transforms=sql(bad))
    assert (ran.status, ran.exit_code) == ("failed", 5)
    assert ran.error["code"] == "transform.failed" and "CAST" in ran.error["message"]
    assert here.saved() == {} and not list(here.home.path.rglob("answers/*"))
    mended = here.run(defaults=APPEND, transforms=sql(COUNTS))
    assert mended.status == "succeeded"
    for stream in ("s0", "s1"):
        assert picked(here.rows(stream), "id", "n") == [(0, 33), (1, 34), (2, 33)]
    assert here.saved() == {"s0": {"seq": 100}, "s1": {"seq": 100}}


def test_a_dry_run_asks_no_spark(site: MakeSite) -> None:
    ran = site(streams=1).run(dry_run=True, transforms=sql(COUNTS))
    assert ran.status == "succeeded" and ran.stream("s0").read == 100


# -- processes that die (L3, L4, L5)

ONE_RUN = """
import json, sys
sys.path.insert(0, {here!r})
import msgspec, one_run
from penstock.config.pipeline import Transform
texts = json.loads(sys.argv[2])
whole = one_run.pipeline_of
transforms = tuple(Transform(use="spark-sql", config={{"query": t}}) for t in texts)
one_run.pipeline_of = lambda told: msgspec.structs.replace(whole(told), transforms=transforms)
sys.exit(one_run.main())
"""


class Killed:
    """A pipeline of one stream in a process of its own; every state is a segment."""

    def __init__(self, site: Site, mode: str, **stub: Any) -> None:
        self.site, self.mode = site, mode
        self.struck = site.folder / "struck"
        self.stub = {"streams": 1, "records": 200, "state_every": 10, "key_space": 7, **stub}

    def run(self, failpoint: str = "", text: str = COUNTS) -> tuple[int, dict[str, Any]]:
        told = {
            "source": self.site.connector(**self.stub),
            "destination": f"{self.site.format}:{self.site.lake}",
            "home": str(self.site.home.path),
            "options": {
                "name": "e2e",
                "destination_sync_mode": self.mode,
                "sync_mode": "full_refresh" if self.mode == "overwrite" else "incremental",
            },
            "master": MASTER,
            "conf": FEW_PARTITIONS,
            "bounds": {"part_bytes": 1, "seal_bytes": 1, "seal_seconds": 0.0},
            "plan": {"scan_seconds": 0.2, "poll_seconds": 0.05},
        }
        kept = warm_spark.as_environment()
        if failpoint:
            kept["PENSTOCK_FAILPOINT"] = failpoint
            kept["PENSTOCK_FAILPOINT_ONCE"] = str(self.struck)
        done = subprocess.run(
            [sys.executable, "-c", ONE_RUN.format(here=str(HERE)), json.dumps(told),
             json.dumps([text])],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, env=kept,
            cwd=self.site.folder,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return done.returncode, json.loads(done.stdout) if done.stdout else {}


@pytest.mark.parametrize(
    ("format", "mode", "point"),
    [
        ("parquet", "append", "after-commit"),
        ("delta", "append_dedup", "after-intent"),
    ],
)
def test_l3_a_load_that_was_killed_is_repeated_and_comes_once(
    tmp_path: Path, format: str, mode: str, point: str
) -> None:
    here = Killed(Site(tmp_path / "site", format), mode, state_every=50)
    code, _ = here.run(f"{point}@program")
    assert (code, here.struck.exists()) == (-9, True)
    left = next((here.site.home.path).rglob("epochs")).parent / "answers" / "of-a-killed-run"
    left.mkdir(parents=True)
    here.stub["records"] = 203
    code, report = here.run()
    label = "at-least-once" if mode == "append" else "exactly-once"
    assert code == 0 and report["guarantee"] == label
    assert not any("no state covers" in note for note in report["notes"])
    rows = here.site.rows("s0")
    first = {i: sum(s % 7 == i for s in range(1, 201)) for i in range(7)}
    then = {s % 7: (1, s) for s in (201, 202, 203)}
    if mode == "append":
        wanted = [*first.items(), *((i, n) for i, (n, _) in then.items())]
    else:
        wanted = list({**first, **{i: n for i, (n, _) in then.items()}}.items())
    assert picked(rows, "id", "n") == sorted(wanted)
    assert here.site.saved() == {"s0": {"seq": 203}}
    assert not left.exists()


def test_l4_what_a_lost_lane_had_sealed_is_part_of_the_one_answer(tmp_path: Path) -> None:
    here = Killed(Site(tmp_path / "site"), "append", delay=0.002)
    code, report = here.run("after-seal:5@child")
    assert here.struck.exists() and code == 0, report
    assert any("started again" in note for note in report["notes"]), report["notes"]
    wanted = Counter(seq % 7 for seq in range(1, 201))
    assert picked(here.site.rows("s0"), "id", "n") == sorted(wanted.items())
    assert report["streams"][0]["committed"] == 200 and report["streams"][0]["written"] == 7


def test_l6_the_epochs_of_a_full_refresh_are_one_answer(tmp_path: Path) -> None:
    stream = {"name": "s0", "is_resumable": True}
    here = Killed(
        Site(tmp_path / "site", "delta"), "overwrite", streams=[stream], resumes=True, delay=0.002
    )
    code, report = here.run("after-seal:5@child")
    assert here.struck.exists() and code == 0, report
    wanted = Counter(seq % 7 for seq in range(1, 201))
    assert picked(here.site.rows("s0"), "id", "n") == sorted(wanted.items())
    assert not any("exact within each" in note for note in report["notes"])

"""Transforms that are WebAssembly components, after sources of two protocols, into tables (issue 5,
part 12; the protocol, sections 3.3, 4, 5 and 7): the examples, and a guest that hands frames on and
does what its configuration says (``tests/stubs/rapidbyte/passing.c``).

Every run is held against L8 and its stored report by ``pipelines.Site.run``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pipelines import Site
from wasm_sites import WasmSite, rapidbyte_guests, share_compiled

import built  # isort: skip  (its folder is on the path now)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

GRANTED = {
    "id": "test/passing", "name": "Passing", "version": "1", "protocol_version": "4",
    "roles": {"transform": {}},
}  # fmt: skip
INCREMENTAL = {"sync_mode": "incremental", "destination_sync_mode": "append"}
OVERWRITE = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
ALL = list(range(1, 101))

Sites = Callable[..., Site]


@pytest.fixture(scope="module")
def passing() -> Callable[..., dict[str, Any]]:
    """``passing(hold=2, ...)``: the entry of a transform."""
    path = rapidbyte_guests.c_guest_file("transform", "passing.c")

    def made(**config: Any) -> dict[str, Any]:
        return {"use": str(path), "config": config, "assume_manifest": GRANTED}

    return made


def clean(**config: Any) -> dict[str, Any]:
    """The Python example."""
    return {"use": str(built.python_transform()), "config": config}


@pytest.fixture
def site(site: Sites) -> Sites:
    """What was compiled for another home is not compiled again."""

    def made(format: str = "parquet", **stub: Any) -> Site:
        here = site(format, **stub)
        share_compiled(here.home.path)
        return here

    return made


@pytest.fixture
def numbers(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., WasmSite]:
    """The C example as a source."""
    del shared_spark
    return lambda format="parquet": WasmSite(
        tmp_path / "wasm", format, binary=built.c_source().read_bytes()
    )


def ids(here: Site, table: str) -> list[int]:
    return [row["id"] for row in here.rows(table, "id")]


# -- after a source of another protocol


def test_c_example_hands_on_every_row_of_an_airbyte_source(site: Sites) -> None:
    here = site()
    plain = site()
    transforms = [{"use": str(built.c_transform())}]
    ran = here.run(defaults=OVERWRITE, transforms=transforms)
    assert plain.run(defaults=OVERWRITE).exit_code == 0
    for stream in ("s0", "s1"):
        assert ran.counts(stream) == ("complete", 100, 100, 0), ran.error
        own = ("id", "seq", "name", "amount", "active", "updated_at", "note")
        want = [{n: r[n] for n in own} for r in plain.rows(stream)]
        assert [{n: r[n] for n in own} for r in here.rows(stream)] == want
    again = here.run(defaults=OVERWRITE, transforms=transforms)
    assert again.counts("s0") == ("complete", 100, 100, 0)
    assert len(here.rows("s0")) == 100


def test_python_example_lowers_a_column_between_built_in_transforms(site: Sites) -> None:
    here = site()
    ran = here.run(
        defaults=INCREMENTAL,
        transforms=[
            {"use": "transform-sql",
             "config": {"query": "SELECT id, seq, upper(name) AS name FROM input WHERE seq <= 50"}},
            clean(lowercase="name"),
            {"use": "transform-sql", "config": {"query": "SELECT seq, id, name FROM input"}},
            {"use": "transform-validate",
             "config": {"rules": [{"assert_range": {"field": "seq", "max": 40}}]}},
        ],
        destination={"on_data_error": "dlq"},
    )  # fmt: skip
    assert ran.exit_code == 0, ran.error
    stream = ran.stream("s0")
    assert (stream.read, stream.rejected, stream.filtered) == (100, 10, 50)
    assert here.seqs("s0") == list(range(1, 41))
    assert all(row["name"] == row["name"].lower() for row in here.rows("s0"))
    assert here.saved()["s0"]["seq"] == 100


def test_l8_dead_letters_are_rejects_of_the_records_that_were_read(site: Sites) -> None:
    here = site(streams=1)
    ran = here.run(
        defaults=INCREMENTAL,
        transforms=[clean(minimum={"column": "seq", "value": 11})],
        destination={"on_data_error": "dlq"},
    )
    assert ran.counts("s0") == ("complete", 100, 90, 10), ran.error
    assert here.seqs("s0") == list(range(11, 101))
    rejects = here.rejects()
    assert len(rejects) == 10 and all("below 11" in r["reason"] for r in rejects)
    skipped = site(streams=1).run(
        defaults=INCREMENTAL,
        transforms=[clean(minimum={"column": "seq", "value": 11})],
        destination={"on_data_error": "skip"},
    )
    assert skipped.exit_code == 0 and skipped.stream("s0").read == 100


# -- states (sections 6 and 7)


def test_l1_states_move_with_what_came_out_and_the_next_run_goes_on(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    here = numbers("delta")
    for rows, new in ((100, 100), (130, 30), (130, 0)):
        ran = here.run(
            config={"rows": rows, "batch_rows": 10}, defaults=INCREMENTAL,
            transforms=[passing(hold=3)],
        )  # fmt: skip
        assert ran.counts("numbers") == ("complete", new, new, 0), ran.error
        assert here.cursors() == {"numbers": str(rows)}
    assert ids(here, "numbers") == list(range(1, 131))


def test_l1_transform_that_dies_midway_moves_no_state_and_loses_no_row(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    here = numbers("delta")
    config = {"rows": 100, "batch_rows": 10}
    ran = here.run(config=config, defaults=INCREMENTAL, transforms=[passing(trap_at=6)])
    assert ran.stream("numbers").status == "failed" and ran.exit_code != 0
    assert ran.error["message"].startswith("transforms[0]: the transform was ended")
    assert here.cursors() == {} and here.rows("numbers", "id") == []
    ran = here.run(config=config, defaults=INCREMENTAL, transforms=[passing()])
    assert ran.counts("numbers") == ("complete", 100, 100, 0), ran.error
    assert ids(here, "numbers") == ALL


def test_l1_checkpoint_of_the_transform_moves_no_state(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    """It makes one after each frame, before that comes out, and fails at its sixth."""
    here = numbers("delta")
    config = {"rows": 100, "batch_rows": 10}
    failing = passing(checkpoint_every=1, hold=2, stream="numbers", fail_at=6)
    ran = here.run(config=config, defaults=INCREMENTAL, transforms=[failing])
    assert ran.stream("numbers").status == "failed"
    assert "NO_MORE" in ran.error["message"] and ran.error["connector"]["code"] == "NO_MORE"
    assert here.cursors() == {} and ids(here, "numbers") == []
    ran = here.run(config=config, defaults=INCREMENTAL, transforms=[passing()])
    assert ran.exit_code == 0 and ids(here, "numbers") == ALL


def test_last_checkpoint_is_reported_and_one_that_is_none_is_named(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    here = numbers()
    ran = here.run(
        config={"rows": 100, "batch_rows": 10}, defaults=OVERWRITE,
        transforms=[passing(checkpoint_every=4, stream="numbers", bad_checkpoint=1)],
    )  # fmt: skip
    assert ran.counts("numbers") == ("complete", 100, 100, 0), ran.error
    ran.noted("malformed:checkpoint", "1")
    told = [s for m in ran.report.metrics for s in m["series"]]
    (mark,) = [s for s in told if s.get("name") == "transform_checkpoint"]
    assert (mark["count"], mark["last"]["id"]) == (2, 8)


def test_stream_that_may_be_tried_again_is(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    here = numbers("delta")
    ran = here.run(
        config={"rows": 100, "batch_rows": 10}, defaults=INCREMENTAL,
        transforms=[passing(fail_at=3, retryable=1)],
    )  # fmt: skip
    assert ran.stream("numbers").status == "failed" and here.rows("numbers", "id") == []
    log = "\n".join(line["message"] for line in here.log_lines(ran.report.run))
    assert log.count("NO_MORE") >= 2, "it was tried more than once"


def test_keys_of_its_own_become_durable_with_the_rows_they_speak_of(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]]
) -> None:
    """A run that fails leaves none of them; scope and place are the transform's own."""
    here = numbers("delta")

    def ran(rows: int, **config: Any) -> int:
        told = passing(count_key=1, **config)
        source = {"rows": rows, "batch_rows": 10}
        return here.run(config=source, defaults=INCREMENTAL, transforms=[told]).exit_code

    assert ran(100, trap_at=3) != 0
    assert ran(100, need_key=1) != 0, "what it wrote before it died is gone"
    assert ran(100) == 0
    assert ran(130, need_key=1) == 0
    assert ids(here, "numbers") == list(range(1, 131))


# -- schemas


def test_columns_that_it_drops_or_adds_are_planned_by_an_empty_batch(site: Sites) -> None:
    here = site(streams=1)
    query = {"use": "transform-sql", "config": {"query": "SELECT id, seq FROM input"}}
    file = here.write(defaults=OVERWRITE, transforms=[query, clean(required="id")])
    (stream,) = here.cli("plan", str(file), "--json").json["streams"]
    assert [c["name"] for c in stream["columns"]] == ["id", "seq"]


@pytest.mark.parametrize("mode", ["overwrite", "append_dedup"])
def test_rows_that_do_not_fit_the_plan_give_the_table_their_columns(site: Sites, mode: str) -> None:
    """The Python example gives nothing for an empty batch, and drops the zone of instants."""
    here = site("delta", streams=1)
    sync = "full_refresh" if mode == "overwrite" else "incremental"
    defaults = {"sync_mode": sync, "destination_sync_mode": mode}
    for records in (100, 120):
        ran = here.run(
            {"records": records}, defaults=defaults, transforms=[clean(lowercase="name")]
        )
        assert ran.stream("s0").status == "complete", ran.error
        assert here.seqs("s0") == list(range(1, records + 1))
        row = here.rows("s0")[0]
        assert row["updated_at"].tzinfo is None and row["name"] == row["name"].lower()


def test_plan_shows_what_holds_it_and_check_asks_it(
    site: Sites, passing: Callable[..., dict[str, Any]]
) -> None:
    here = site(streams=1)
    told = {**passing(invalid=1), "limits": {"timeout_seconds": 7}}
    file = here.write(defaults=OVERWRITE, transforms=[told])
    plan = here.cli("plan", str(file), "--json").json
    assert plan["limits"]["transform:0"] == {"timeout_seconds": 7}
    held = {line["name"]: line["value"] for line in plan["held"]["transform:0"]}
    assert 7 in held.values()
    answer = here.cli("check", str(file), "--json")
    assert answer.code != 0 and "it was told to fail" in answer.out


# -- kills


def test_l4_lane_killed_between_its_rows_brings_each_row_once(
    numbers: Callable[..., WasmSite], passing: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """L2, L4: rows that came out without their state are dropped, and come again once."""
    here = numbers("delta")
    file = here.write(
        config={"rows": 100, "batch_rows": 10}, defaults=INCREMENTAL,
        transforms=[passing(checkpoint_every=1, stream="numbers")],
    )  # fmt: skip
    struck = tmp_path / "struck"
    answer = here.cli(
        "run", str(file), "--json",
        PENSTOCK_FAILPOINT="mid-transform:4", PENSTOCK_FAILPOINT_ONCE=str(struck),
    )  # fmt: skip
    assert struck.exists(), answer.err[-2000:]
    if answer.code != 0:
        answer = here.cli("run", str(file), "--json")
    assert answer.code == 0, answer.err[-2000:]
    assert ids(here, "numbers") == ALL and here.cursors() == {"numbers": "100"}

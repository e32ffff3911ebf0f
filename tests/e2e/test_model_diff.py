"""Reverse ETL: which rows of a model are sent, compared with those that were acknowledged before
(issue 12, part 5). The snapshot moves with the state (L1), so a crash loses and doubles nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connector_sites import Push, stub
from model_sites import ModelSite
from pipelines import NAME, Heard, Ran

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ALL = "SELECT * FROM {users}"


class Users:
    """A model of users, with the id as its key."""

    def __init__(self, site: ModelSite) -> None:
        self.site = site

    def have(self, **names: str | None) -> None:
        """``u1="Ann"``: the user 1 is called Ann; no user: the model has no rows."""
        rows = [{"id": int(key[1:]), "name": name} for key, name in names.items()]
        self.site.give(*rows, schema=[("id", "int64"), ("name", "string")])

    def send(self, mode: str, query: str = ALL, **parts: Any) -> Ran:
        defaults = {"mode": mode, "primary_key": [["id"]], **parts.pop("defaults", {})}
        return self.site.read(query, defaults=defaults, **parts)

    def table(self) -> dict[int, str]:
        return {row["id"]: row["name"] for row in self.site.rows("query", "id")}


@pytest.fixture
def users(tmp_path: Path, shared_spark: "SparkSession") -> Callable[..., Users]:
    del shared_spark
    made: list[Users] = []

    def make(format: str = "delta") -> Users:
        made.append(Users(ModelSite(tmp_path / f"users-{len(made)}", format)))
        return made[-1]

    return make


MakeUsers = Callable[..., Users]


def sent(ran: Ran) -> int:
    assert ran.exit_code == 0, ran.error
    return ran.stream("query").read


def test_mirror_sends_what_differs_and_a_full_refresh_everything(users: MakeUsers) -> None:
    here = users()
    here.have(u1="Ann", u2="Bob", u3="Cid")
    assert sent(here.send("mirror")) == 3
    here.have(u1=None, u2="Bea", u4="Dan", u5="Eve")
    second = here.send("mirror")
    assert sent(second) == 5
    second.noted("2 added, 2 changed, 1 removed, 0 as before, 0 refused")
    assert here.table() == {1: None, 2: "Bea", 4: "Dan", 5: "Eve"}
    here.have(u1=None, u2="Bo", u4="Dan", u5="Eve")
    third = here.send("mirror")
    assert sent(third) == 1
    third.noted("0 added, 1 changed, 0 removed, 3 as before, 0 refused")
    here.have(u2="Bo", u5="Eve")
    assert sent(here.send("mirror", full_refresh=True)) == 2, "a full refresh sends every row"
    assert here.table() == {1: None, 2: "Bo", 4: "Dan", 5: "Eve"}, "and removes none"


def test_rows_without_a_key_of_their_own_are_rejects_and_remove_nothing(users: MakeUsers) -> None:
    """L8, L9 of models: where rows came and none can be taken, nothing says that the others are
    gone."""
    here = users()
    here.have(u1="Ann", u2="Bob")
    here.send("mirror")
    refused = here.send("mirror", "SELECT nullif(id, id) AS id, name FROM {users}")
    assert refused.exit_code != 0 and refused.error["code"] == "source.empty_model"
    assert "none of the 2 rows has a key of its own" in refused.error["message"]
    assert here.table() == {1: "Ann", 2: "Bob"}
    query = (
        "SELECT * FROM {users} UNION ALL SELECT 2, 'Twin' UNION ALL SELECT NULL, 'Nobody' "
        "UNION ALL SELECT 5, 'Eve'"
    )
    ran = here.send("mirror", query)
    assert ran.counts("query") == ("complete", 4, 1, 3), "1 is not sent: the state was as before"
    reasons = sorted(reject["reason"] for reject in here.site.rejects())
    assert [r.split()[0] for r in reasons] == ["several", "several", "the"]
    assert here.table() == {1: "Ann", 2: "Bob", 5: "Eve"}
    quiet = here.send("mirror", query)
    assert quiet.counts("query") == ("complete", 3, 0, 3), "rows that are as before are good rows"
    strict = here.send("mirror", query, defaults={"max_rejected": "50%"})
    assert strict.error["code"] == "source.rejected" and "3 of 5 records" in strict.error["message"]


def test_every_change_of_a_value_is_sent(users: MakeUsers) -> None:
    """One kind of change a row. In JSON as Spark makes it a second has three digits, so that a
    microsecond in a map would be none."""
    here = users()
    here.have(**{f"u{n}": "Ann" for n in range(1, 6)})
    at = "array(map('t', CASE WHEN id = 3 THEN TIMESTAMP '2026-01-02 03:04:05.{}' END)) AS at"
    before = f"SELECT id, nullif(name, if(id < 3, '', name)) AS name, {at.format(123456)}"
    assert sent(here.send("upsert", f"{before} FROM {{users}}")) == 5
    after = (
        f"SELECT id, if(id = 1, 7, NULL) AS name, {at.format(123457)}, "
        "CASE WHEN id = 4 THEN 'x' END AS more FROM {users}"
    )
    assert sent(here.send("upsert", after)) == 4, "5 is as it was"
    rows = {row["id"]: row for row in here.site.rows("query", "id")}
    assert rows[1]["name"] == "7", "another type"
    assert rows[2]["name"] is None, "NULL in another type"
    assert "123457" in str(rows[3]["at"]), "a microsecond in a map"
    assert (rows[4]["more"], rows[5]["more"]) == ("x", None), "a value in a new column"
    assert sent(here.send("upsert", after)) == 0


def test_insert_update_and_upsert_send_their_kinds(users: MakeUsers) -> None:
    for mode, wanted in (("insert", 1), ("update", 1), ("upsert", 2)):
        here = users("parquet")
        here.have(u1="Ann", u2="Bob")
        assert sent(here.send(mode)) == 2
        here.have(u1="Ann", u2="Bea", u3="Cid")
        assert sent(here.send(mode)) == wanted, mode
        here.have(u2="Bea", u3="Cid")
        again = here.send(mode)
        assert sent(again) == 0, mode
        # What is new is known to update, and removed rows are sent by mirror only.
        again.noted("0 added", "1 removed (not sent)")


def test_rows_that_were_not_compared_make_the_snapshot_unknown(users: MakeUsers) -> None:
    """L8: the snapshot still had what an overwrite took away, so that it was never sent again."""
    here = users()
    here.have(u1="Ann", u2="Bob", u3="Cid")
    assert sent(here.send("mirror")) == 3
    for mode in ("overwrite", "append_dedup"):
        here.have(u1="Ann", u2="Bea")
        whole = {"destination_sync_mode": mode, "primary_key": [["id"]]}
        ran = here.site.read(ALL, defaults=whole)
        assert sent(ran) == 2, mode
        assert ran.noted("the next run that compares sends every row"), mode
        here.have(u1="Ann", u2="Bob", u3="Cid")
        again = here.send("mirror")
        assert sent(again) == 3, mode
        assert again.noted("other rows were written since"), mode
        assert here.table() == {1: "Ann", 2: "Bob", 3: "Cid"}, mode
    assert sent(here.send("mirror")) == 0


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NTZ", "STRING"])
def test_a_model_that_has_a_column_of_deletes_of_its_own(users: MakeUsers, type_: str) -> None:
    """As a table has that keeps deleted rows: the removal is told in this column."""
    here = users()
    query = f"SELECT *, CAST(NULL AS {type_}) AS _ab_cdc_deleted_at FROM {{users}}"
    here.have(u1="Ann", u2="Bob")
    assert sent(here.send("mirror", query)) == 2
    here.have(u1="Ann")
    assert sent(here.send("mirror", query)) == 1
    assert here.table() == {1: "Ann"}


def test_a_key_of_another_type_is_told(users: MakeUsers) -> None:
    """Nothing is removed then, which must not happen in silence."""
    here = users()
    here.have(u1="Ann", u2="Bob")
    assert sent(here.send("mirror")) == 2
    here.have(u1="Ann")
    ran = here.send("mirror", "SELECT CAST(id AS STRING) AS id, name FROM {users}")
    assert sent(ran) == 1 and ran.noted("primary key has another type now")


def test_a_column_of_deletes_that_can_hold_no_time_is_refused(users: MakeUsers) -> None:
    here = users()
    here.have(u1="Ann")
    with pytest.raises(ConfigError, match="_ab_cdc_deleted_at"):
        here.send("mirror", "SELECT *, false AS _ab_cdc_deleted_at FROM {users}")


def test_a_dry_run_tells_what_would_be_sent_and_keeps_nothing(users: MakeUsers) -> None:
    here = users()
    here.have(u1="Ann", u2="Bob")
    here.send("mirror")
    here.have(u1="Anna", u3="Cid")
    dry = here.send("mirror", dry_run=True)
    dry.noted("1 added, 1 changed, 1 removed")
    assert json.loads(dry.noted("changed: {").partition("changed: ")[2])["name"] == "Anna"
    assert here.table() == {1: "Ann", 2: "Bob"}
    assert sent(here.send("mirror")) == 3


def test_rows_that_a_destination_did_not_acknowledge_are_sent_again(users: MakeUsers) -> None:
    """L1: the snapshot holds what was acknowledged."""
    here = users()
    push = Push(here.site, "airbyte")
    here.have(u1="Ann", u2="Bob")

    def into(**told: Any) -> Ran:
        return here.send("upsert", destination={"use": push.destination(**told), "config": {}})

    failed = into(kill_at=1)
    assert failed.exit_code != 0
    before = len(push.runs())
    again = into()
    assert again.exit_code == 0, again.error
    heard = [row for run in push.runs()[before:] for row in run.records(NAME)]
    assert sorted(row["id"] for row in heard) == [1, 2]


KNOWS_REMOVALS = {
    "type": "object",
    "properties": {"_ab_cdc_deleted_at": {"type": ["string", "null"], "format": "date-time"}},
}


class Crm:
    """A Syncmaven destination for :class:`Users`: the stub, which fails the ids that it is told."""

    def __init__(self, here: Users) -> None:
        self.here = here
        self.sink = here.site.folder / "sink.jsonl"

    def section(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Takes ``told`` and ``destination`` out of ``parts``."""
        told = {"sink": str(self.sink), "row_type": KNOWS_REMOVALS, **parts.pop("told", {})}
        use = f"syncmaven:{stub('stub_syncmaven.py', json.dumps(told))}"
        return {"use": use, "config": {}, **parts.pop("destination", {})}

    def send(self, mode: str = "upsert", **parts: Any) -> Ran:
        self.sink.unlink(missing_ok=True)
        section = self.section(parts)
        return self.here.send(mode, destination=section, **parts)

    def planned(self, mode: str, **parts: Any) -> str:
        """The notes of `penstock plan`."""
        site, section = self.here.site, self.section(parts)
        query = ALL.replace("{users}", f"parquet.`{site.users}`")
        defaults = {"mode": mode, "primary_key": [["id"]]}
        file = site.write(use=f"spark:{query}", defaults=defaults, destination=section, **parts)
        pipeline = load_pipeline(file, env={})
        return str(plan_pipeline(pipeline, site.home, observer=Heard())["notes"])

    def heard(self, type_: str) -> list[Any]:
        lines = self.sink.read_text().splitlines() if self.sink.exists() else []
        return [m["payload"] for m in map(json.loads, lines) if m["type"] == type_]

    def ids(self) -> list[int]:
        return sorted({one["row"]["id"] for one in self.heard("row")})

    def attempts(self, ran: Ran) -> list[tuple[Any, int]]:
        """(key, attempt) of the rejects of a run."""
        kept = [r for r in self.here.site.rejects() if r["run"] == ran.report.run]
        return [(r["key"], r["attempt"]) for r in kept]


def test_rejected_rows_are_sent_again_as_often_as_the_policy_says(users: MakeUsers) -> None:
    """Issue 12, part 6: row, key, reason, attempt; new, changed and removed rows alike."""
    crm = Crm(users())
    isolate = {"destination": {"on_failed_rows": "isolate"}, "defaults": {"retry_rejected": 2}}
    crm.here.have(u1="Ann", u2="Bob", u3="Cid")

    def run(*fails: int) -> Ran:
        parts = {name: dict(part) for name, part in isolate.items()}
        ran = crm.send("mirror", told={"fail": list(fails)}, **parts)
        assert ran.exit_code == 0, ran.error
        return ran

    assert crm.attempts(run(2)) == [({"id": 2}, 1)]
    crm.here.have(u1="Ann", u2="Bob", u3="Cyd", u4="Dan")
    second = run(2, 3)
    assert crm.ids() == [2, 3, 4]
    assert second.noted("1 rows that were rejected before are sent again")
    assert sorted(crm.attempts(second), key=str) == [({"id": 2}, 2), ({"id": 3}, 1)]
    crm.here.have(u2="Bob", u3="Cyd", u4="Dan")
    third = run(1, 2)
    assert crm.ids() == [1, 2, 3], "1 is removed, 2 and 3 are tried again"
    assert sorted(crm.attempts(third), key=str) == [({"id": 1}, 1), ({"id": 2}, 3)]
    fourth = run()
    assert crm.ids() == [1], "2 was tried again twice, 3 was taken"
    assert not crm.attempts(fourth)


def test_a_mapping_that_leaves_out_who_is_gone_is_refused(users: MakeUsers) -> None:
    """A removal is a row with the time in `_ab_cdc_deleted_at`: without it the destination would
    write the row that is gone."""
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob")
    fields = {"key": "id", "label": "name"}
    with pytest.raises(ConfigError) as refused:
        crm.send("mirror", destination={"mapping": fields})
    assert "leaves out '_ab_cdc_deleted_at'" in str(refused.value.problems)
    assert not crm.heard("row")
    with pytest.raises(ConfigError) as refused:
        crm.send("upsert", destination={"mapping": {"a": "name"}}, defaults={"retry_rejected": 1})
    assert "leaves out 'id' of the primary key" in str(refused.value.problems)
    told = {"mapping": {**fields, "gone": "_ab_cdc_deleted_at"}}
    assert sent(crm.send("mirror", destination=told)) == 2
    crm.here.have(u1="Ann")
    assert sent(crm.send("mirror", destination=told)) == 1
    (row,) = (one["row"] for one in crm.heard("row"))
    assert (row["key"], bool(row["gone"])) == (2, True)


def test_a_field_that_the_destination_never_had_is_sent_of_every_row(users: MakeUsers) -> None:
    """A target is what the query says (L8): rows that are as before lack what another mapping,
    stream or option of the destination has more. A removal among them is sent as one."""
    crm = Crm(users())
    told = {"streams": ["contacts", "leads"]}
    form: dict[str, Any] = {
        "mapping": {"id": "id", "gone": "_ab_cdc_deleted_at"}, "stream": "contacts", "options": {},
    }  # fmt: skip
    names = {f"u{n}": "Ann" for n in range(1, 6)}
    crm.here.have(**names)
    assert sent(crm.send("mirror", destination=dict(form), told=told)) == 5
    assert "every row is sent again" not in crm.planned("mirror", destination=form, told=told)
    for gone, change in (
        (5, {"mapping": {**form["mapping"], "label": "name"}}),
        (4, {"mapping": {}}),
        (3, {"stream": "leads"}),
        (2, {"options": {"audience": "b"}}),
    ):
        form |= change
        del names[f"u{gone}"]
        crm.here.have(**names)
        planned = crm.planned("mirror", destination=dict(form), told=told)
        assert "every row is sent again" in planned, change
        ran = crm.send("mirror", destination=dict(form), told=told)
        assert sent(ran) == gone, change
        mark = "gone" if form["mapping"] else "_ab_cdc_deleted_at"
        heard = {o["row"]["id"]: bool(o["row"].get(mark)) for o in crm.heard("row")}
        assert heard == {**dict.fromkeys(range(1, gone), False), gone: True}, change
        assert ran.noted("every row is sent again"), change
    form["mapping"] = {"id": "id", "_ab_cdc_deleted_at": "_ab_cdc_deleted_at"}
    assert sent(crm.send("mirror", destination=form, told=told)) == 0, "nothing new in it"


def test_insert_sends_no_row_again_under_another_mapping(users: MakeUsers) -> None:
    crm = Crm(users())
    crm.here.have(u1="Ann")
    assert sent(crm.send("insert", destination={"mapping": {"id": "id"}})) == 1
    crm.here.have(u1="Ann", u2="Bob")
    more = {"mapping": {"id": "id", "label": "name"}}
    assert sent(crm.send("insert", destination=more)) == 1
    assert [one["row"]["label"] for one in crm.heard("row")] == ["Bob"]


def test_removals_are_refused_by_a_destination_that_does_not_know_them(users: MakeUsers) -> None:
    """It would write the row that is gone, and create it anew where others had deleted it."""
    crm = Crm(users())
    crm.here.have(u1="Ann")
    with pytest.raises(ConfigError) as refused:
        crm.send("mirror", told={"row_type": {"type": "object"}})
    assert "gone are sent with the time in '_ab_cdc_deleted_at'" in refused.value.problems[0]
    assert not crm.heard("row")


def test_a_transform_that_leaves_out_who_is_gone_is_refused(users: MakeUsers) -> None:
    here = users()
    here.have(u1="Ann")
    query = {"use": "transform-sql", "config": {"query": "SELECT id, name FROM input"}}
    with pytest.raises(ConfigError) as refused:
        here.send("mirror", transforms=[query])
    assert "leave out _ab_cdc_deleted_at" in str(refused.value.problems)
    assert sent(here.send("upsert", transforms=[query])) == 1


def test_without_the_policy_a_rejected_row_counts_as_sent_until_it_changes(
    users: MakeUsers,
) -> None:
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob", u3="Cid")
    isolate = {"on_failed_rows": "isolate"}
    crm.send(told={"fail": [2, 3]}, destination=isolate)
    crm.here.have(u1="Ann", u2="Bob", u3="Cyd")
    crm.send(destination=isolate)
    assert crm.ids() == [3]


def test_no_row_is_removed_that_the_destination_never_took(users: MakeUsers) -> None:
    """Issue 12, part 5: removed rows are sent only if we sent them before. A row of that key may be
    there all the same, from others."""
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob", u3="Cid", u4="Dan")
    isolate = {"on_failed_rows": "isolate"}
    crm.send("mirror", told={"fail": [2, 4]}, destination=isolate)
    crm.here.have(u1="Ann", u2="Bob", u3="Cyd", u4="Don")
    crm.send("mirror", told={"fail": [3]}, destination=isolate)
    assert crm.ids() == [3, 4]
    crm.here.have(u1="Ann")
    crm.send("mirror", destination=isolate)
    assert crm.ids() == [3, 4], "2 was never taken, of 3 an earlier row was, 4 was taken since"


def test_a_row_that_failed_the_run_is_sent_again_by_the_next_one(users: MakeUsers) -> None:
    """L1: ``on_failed_rows: fail`` acknowledges nothing of the checkpoint; no policy is needed."""
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob")
    assert crm.send(told={"fail": [2]}).error["code"] == "destination.rows_failed"
    assert crm.send().exit_code == 0
    assert crm.ids() == [1, 2]


def test_a_stream_that_is_not_compared_cannot_try_rejected_rows_again(users: MakeUsers) -> None:
    crm = Crm(users())
    crm.here.have(u1="Ann")
    with pytest.raises(ConfigError) as refused:
        crm.send("append", defaults={"retry_rejected": 1, "primary_key": None})
    assert "retry_rejected sends rows again that were rejected" in refused.value.problems[0]


def test_a_destination_is_told_of_a_full_refresh_and_of_a_lost_snapshot(users: MakeUsers) -> None:
    """Issue 12, part 5: every row is sent with ``fullRefresh: true``, and none is removed. Only the
    first process of a stream hears it: the next would drop what the first was sent."""
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob", u3="Cid")
    notes: list[str] = []

    def told(**parts: Any) -> tuple[list[bool], list[int]]:
        ran = crm.send("mirror", destination={"checkpoint_every": 2}, **parts)
        assert ran.exit_code == 0, ran.error
        notes[:] = ran.notes
        return [start["fullRefresh"] for start in crm.heard("start-stream")], crm.ids()

    assert told() == ([False, False], [1, 2, 3])
    crm.here.have(u1="Anna", u2="Bob")
    assert told(full_refresh=True) == ([True], [1, 2])
    crm.here.have(u1="Anna", u2="Bea")
    assert told() == ([False], [2])
    (snapshots,) = crm.here.site.home.path.glob("**/snapshots")
    snapshots.rename(snapshots.with_name("elsewhere"))
    crm.here.have(u1="Anna")
    assert told() == ([True], [1]), "2 is gone, and not removed"
    assert any("every row is sent, and no row is removed" in note for note in notes)


def test_what_is_left_of_a_full_refresh_is_not_told_to_be_all(users: MakeUsers) -> None:
    """L1: a destination that drops what it has would lose the rows that it acknowledged."""
    crm = Crm(users())
    crm.here.have(u1="Ann", u2="Bob", u3="Cid")
    crm.send()
    every = {"checkpoint_every": 1}
    broken = crm.send(full_refresh=True, told={"fail": [2]}, destination=every)
    assert broken.exit_code != 0
    first = [s["fullRefresh"] for s in crm.heard("start-stream")]
    assert crm.send(destination=every).exit_code == 0
    assert (first[0], any(first[1:])) == (True, False)
    again = [s["fullRefresh"] for s in crm.heard("start-stream")]
    # Nothing of the epoch was settled, so it begins anew, and is all there is.
    assert (again[0], crm.ids()) == (True, [1, 2, 3])


@pytest.mark.parametrize("point", ["after-intent", "after-commit"])
def test_killed_before_and_after_the_commit(users: MakeUsers, point: str) -> None:
    """SIGKILL of the program: no row is lost, none comes twice, and nothing is sent again once its
    state is saved."""
    here = users("parquet")
    here.have(u1="Ann", u2="Bob")
    here.send("mirror")
    here.have(u1="Ann", u2="Bea", u3="Cid")
    path = str(here.site.folder / "pipeline.yaml")
    killed = here.site.cli("run", path, PENSTOCK_FAILPOINT=f"{point}@program")
    assert killed.code != 0, killed.out
    here.send("mirror")
    assert here.table() == {1: "Ann", 2: "Bea", 3: "Cid"}
    assert sent(here.send("mirror")) == 0

"""The place of a pipeline (L3), from the file to the table: a copy is refused, a plan finds tables
that moved; every command of a hint runs as it is printed.

The many ways are ``tests/engine/plan/test_place.py``'s.
"""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import Answer, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]


def written(site: Site, folder: str, path: str = "./lake", **keys: Any) -> Path:
    """Writes the site's pipeline file into a folder, with a relative path of its tables."""
    place = site.folder / folder
    place.mkdir(parents=True, exist_ok=True)
    document = site.document({"records": 5}, destination={"config": {"path": path}}, **keys)
    (place / "shop.yaml").write_text(json.dumps({**document, "pipeline": "shop"}))
    return place / "shop.yaml"


def commands(text: str) -> list[list[str]]:
    return [shlex.split(each) for each in text.split("`")[1::2] if each.startswith("penstock ")]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L3_a_copy_of_a_pipeline_is_refused_and_its_ways_out_run(
    site: MakeSite, format: str
) -> None:
    here = site(format, streams=1)
    first = written(here, "a")

    def penstock(*words: str) -> Answer:
        """With a home that only the option names."""
        home = [] if "--home" in words else ["--home", str(here.home.path)]
        empty = str(here.folder / "no-home")
        return here.cli(*words, *home, PENSTOCK_HOME=empty)

    assert penstock("run", str(first)).code == 0
    second = written(here, "b")
    told = penstock("run", str(second), "--json")
    assert (told.code, told.error["code"]) == (2, "config.other_place"), told.out
    assert not (second.parent / "lake").exists()
    planned = penstock("plan", str(second), "--json")
    assert planned.code == 2 and str(first.parent) in planned.json["problems"][0]
    rename, adopt = commands(told.error["hint"])
    done = penstock(*rename[1:])
    assert done.code == 0, done.err
    assert (second.parent / "lake" / "s0").is_dir()
    shutil.rmtree(second.parent / "lake")
    assert penstock(*adopt[1:]).code == 0
    planned = penstock("plan", str(second), "--json")  # its tables did not move with it
    assert planned.code == 2 and str(first.parent / "lake") in planned.json["problems"][0]
    shutil.copytree(first.parent / "lake", second.parent / "lake")
    done = penstock("run", str(second), "--json")
    assert done.code == 0, done.out
    # a table that is gone: found by the plan, and both ways out run
    shutil.rmtree(second.parent / "lake" / "s0")
    planned = penstock("plan", str(second), "--json")
    assert planned.code == 2
    (problem,) = planned.json["problems"]
    recreate, adopt = commands(problem)
    assert penstock(*adopt[1:]).code == 0
    done = penstock(*recreate[1:])
    assert done.code == 0, done.err
    assert penstock("plan", str(second), "--json").json["problems"] == []


def test_L3_the_hints_of_a_restored_home_and_of_a_lost_table_run_as_printed(site: MakeSite) -> None:
    """The commands name the home and the file, wherever they need them."""
    here = site(streams=1)
    file = written(here, "p", defaults={"destination_sync_mode": "append"})
    away = {"PENSTOCK_HOME": str(here.folder / "no-home")}

    def run() -> Answer:
        home = ("--home", str(here.home.path))
        return here.cli("run", "p/shop.yaml", "--json", *home, **away)

    assert run().code == 0
    copy = here.folder / "copy"
    shutil.copytree(here.home.path, copy)
    file.write_text(file.read_text().replace('\\"records\\": 5', '\\"records\\": 7'))
    assert run().code == 0
    shutil.rmtree(here.home.path)
    shutil.move(copy, here.home.path)
    planned = here.cli("plan", "p/shop.yaml", "--json", "--home", str(here.home.path), **away)
    assert "did not begin" in planned.json["problems"][0]
    told = run().json
    assert told["error"]["code"] == "state.table_ahead"
    (adopt,) = commands(told["error"]["hint"])
    assert here.cli(*adopt[1:], **away).code == 0
    assert run().code == 0
    shutil.rmtree(file.parent / "lake" / "s0")
    file.write_text(file.read_text().replace('\\"records\\": 7', '\\"records\\": 9'))
    told = run().json
    assert told["error"]["code"] == "destination.table_behind"
    recreate, adopt = commands(told["error"]["hint"])
    assert recreate[1:3] == ["run", "p/shop.yaml"] and adopt[-2] == "--home"
    assert here.cli(*adopt[1:], **away).code == 0
    assert here.cli(*recreate[1:], **away).code == 0


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L1_a_pipeline_does_not_replace_the_rows_of_another_one_unasked(
    site: MakeSite, format: str
) -> None:
    """A newcomer's report: the second run was exactly-once, and the first pipeline went on from its
    state without its rows."""
    here = site(format, streams=1)

    def file(pipeline: str, mode: str, records: int) -> str:
        streams = [{"name": "s0", "mode": mode}]
        document = here.document({"records": records}, streams=streams, pipeline=pipeline)
        path = here.folder / f"{pipeline}.yaml"
        path.write_text(json.dumps(document))
        return str(path)

    orders, other = file("orders", "upsert", 5), file("other", "full_refresh_overwrite", 3)
    assert here.cli("run", orders).code == 0
    planned = here.cli("plan", other, "--json")
    assert planned.code == 2 and "rows of the pipeline 'orders'" in planned.json["problems"][0]
    told = here.cli("run", other, "--json")
    assert (told.code, told.error["code"]) == (2, "config.other_pipeline"), told.out
    assert len(here.rows("s0")) == 5
    assert here.cli("run", file("adds", "append", 2)).code == 0, "others may add rows"
    assert len(here.rows("s0")) == 7
    (asked,) = commands(told.error["hint"])
    done = here.cli(*asked[1:], "--json")
    assert done.code == 0 and any("'orders'" in note for note in done.json["notes"]), done.out
    assert len(here.rows("s0")) == 3
    again = here.cli("run", other, "--json")
    assert again.code == 0 and not any("'orders'" in note for note in again.json["notes"])
    assert here.cli("state", "reset", "other").code == 0
    assert here.cli("run", other).code == 0, "it wrote the table before, whatever its state"
    assert here.cli("run", orders, "--recreate", "--yes").code == 0
    assert len(here.rows("s0")) == 5

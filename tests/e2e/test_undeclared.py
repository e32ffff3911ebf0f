"""Singer, RECORD: properties that a SCHEMA does not declare, into tables that Spark writes: one
JSON column, made when the first such value comes.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# The specification's example, as it is printed there.
PAGE = """\
{"type": "SCHEMA", "stream": "users", "key_properties": ["id"], "schema": {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}}
{"type": "RECORD", "stream": "users", "record": {"id": 1, "name": "Chris"}}
{"type": "RECORD", "stream": "users", "record": {"id": 2, "name": "Mike"}}
{"type": "SCHEMA", "stream": "locations", "key_properties": ["id"], "schema": {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}}
{"type": "RECORD", "stream": "locations", "record": {"id": 1, "name": "Philadelphia"}}
{"type": "STATE", "value": {"users": 2, "locations": 1}}
"""  # noqa: E501
TAP = """
import json, sys
id = {"required": ["id"], "type": "object", "properties": {"id": {"type": "integer"}}}
if "--discover" in sys.argv:
    print(json.dumps({"streams": [{"tap_stream_id": n, "stream": n, "key_properties": ["id"],
                                   "schema": id} for n in ("users", "locations")]}))
elif "--about" not in sys.argv:
    print(open(MESSAGES).read().strip(), flush=True)
"""


def run(here: Site, messages: str, transforms: Any = (), **defaults: Any) -> Ran:
    told, script = here.folder / "messages.jsonl", here.folder / "tap.py"
    told.write_text(messages)
    script.write_text(TAP.replace("MESSAGES", repr(str(told))))
    use, transforms = f"singer:{sys.executable} {script}", list(transforms)
    done = here.run(use=use, defaults=defaults, transforms=transforms)
    assert done.status == "succeeded", done.error
    return done


def rows(here: Site, table: str) -> list[tuple[int, str | None]]:
    folder = here.lake / table
    if here.format == "delta":
        arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
    else:
        files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
        arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
    if "_penstock_extra" not in arrow.column_names:
        return sorted(((row["id"], None) for row in arrow.to_pylist()), key=str)
    return sorted(((r["id"], r["_penstock_extra"]) for r in arrow.to_pylist()), key=str)


def users(*records: dict[str, Any], state: int = 1) -> str:
    said = [{"type": "RECORD", "stream": "users", "record": r} for r in records]
    messages = [*said, {"type": "STATE", "value": {"users": state}}]
    return "\n".join([PAGE.splitlines()[0], *map(json.dumps, messages)]) + "\n"


@pytest.mark.parametrize(
    ("mode", "format"), [("mirror", "delta"), ("append", "parquet"), ("upsert", "delta")]
)
def test_singer_page_the_worked_example_is_in_the_tables(
    site: Callable[..., Site], format: str, mode: str
) -> None:
    """A table that has no such column yet gets it; rows without such values are NULL there."""
    here = site(format)
    own: dict[str, Any] = {"mode": mode}
    if mode != "mirror":
        own["sync_mode"] = "incremental"
    both = PAGE.splitlines()
    first = run(here, users({"id": 1}, {"id": 9}) + "\n".join([both[3], both[5]]), **own)
    assert first.status == "succeeded" and rows(here, "users") == [(1, None), (9, None)]
    done = run(here, PAGE, **own)
    assert "field not in the schema, kept: users.name (2)" in done.notes
    came = [(1, '{"name":"Chris"}'), (2, '{"name":"Mike"}')]
    kept = {"mirror": [], "append": [(1, None), (9, None)], "upsert": [(9, None)]}[mode]
    assert rows(here, "users") == sorted([*came, *kept], key=str)
    assert rows(here, "locations") == [(1, '{"name":"Philadelphia"}')]
    if mode == "upsert":
        run(here, users({"id": 2}, {"id": 3, "big": 12345678901234567890}, state=3)
            + "\n".join([both[3], both[5]]), **own)  # fmt: skip
        assert rows(here, "users") == [
            (1, '{"name":"Chris"}'), (2, None), (3, '{"big":12345678901234567890}'), (9, None),
        ]  # fmt: skip


def test_a_query_over_the_whole_stream_takes_it_as_a_column(site: Callable[..., Site]) -> None:
    here = site("parquet")
    for query in ("SELECT * FROM input", "SELECT id, _penstock_extra FROM input ORDER BY id"):
        asked = [{"use": "spark-sql", "config": {"query": query}}]
        run(here, PAGE, transforms=asked, mode="mirror")
        assert rows(here, "users") == [(1, '{"name":"Chris"}'), (2, '{"name":"Mike"}')]
    asked = [{"use": "spark-sql", "config": {"query": "SELECT id FROM input"}}]
    run(here, PAGE, transforms=asked, mode="mirror")
    assert rows(here, "users") == [(1, None), (2, None)]

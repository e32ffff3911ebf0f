"""L8, L9: rows that were lost or doubled in public reports, where Spark itself writes the load: a
column or a field is new in the table. The right rows were decided before the runs."""

import json
import sys
from collections.abc import Callable
from typing import Any

import deltalake
import duckdb
import pytest
from pipelines import Ran, Site

from reported_connectors import (
    GONE,
    INTEGER,
    MARKS,
    POSITIONS,
    TEXT,
    TIME,
    changes,
    script,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.dear, pytest.mark.timeout(300)]

LONG = "k" * 40
KEYS = ["a", "A", "a ", " a", "é", "e\u0301", "", "0", "00", "\x00x", LONG, f"{LONG}\U0001f600"]
YEAR = "2024-01-01T00:00:00Z"
Row = dict[str, Any]


class Reported:
    """A pipeline of one connector, whose streams a test changes between runs."""

    def __init__(self, here: Site, protocol: str, **streams: Row) -> None:
        self.here, self.streams = here, streams
        self._world = here.folder / "world.json"
        program = here.folder / "connector.py"
        program.write_text(script(protocol, str(self._world), str(here.folder / "state.json")))
        self._use = f"{protocol}:{sys.executable} {program}"

    def sends(self, *sent: Any) -> Ran:
        self._world.write_text(json.dumps({"streams": self.streams, "sent": sent}))
        done = self.here.run(use=self._use)
        assert done.status == "succeeded", done.error
        return done

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        folder = self.here.lake / table
        if self.here.format == "delta":
            arrow = deltalake.DeltaTable(str(folder)).to_pyarrow_table()
        else:
            files = f"read_parquet('{folder}/*.parquet', union_by_name = true)"
            arrow = duckdb.connect().sql(f"SELECT * FROM {files}").to_arrow_table()
        return sorted((tuple(r[c] for c in columns) for r in arrow.to_pylist()), key=repr)


def keyed(**columns: Any) -> Row:
    return stream({"id": INTEGER, "v": TEXT, "n": INTEGER, **columns}, cursor="n")


def objects(*names: str) -> Row:
    return {"type": ["null", "object"], "properties": dict.fromkeys(names, TEXT)}


def nested(*names: str) -> Row:
    return keyed(o=objects(*names), l={"type": ["null", "array"], "items": objects(*names)})


@pytest.mark.parametrize(("protocol", "form"), [("airbyte", "delta"), ("singer", "parquet")])
def test_L8_rows_of_public_reports_that_spark_writes(
    site: Callable[..., Site], protocol: str, form: str
) -> None:
    """airbytehq/airbyte#51559 (log), pingcap/tidb-binlog#1046 (texts), delta-io/delta#5613 (nest:
    objects that are null became objects of nulls), airbytehq/airbyte#70438 (twin: `na_e` beside
    `NA_E`), delta-io/delta#944 (later: a column that is only null at first)."""
    position, mark = POSITIONS[protocol], MARKS[protocol]

    def streams(**new: Any) -> dict[str, Row]:
        return {
            "log": changes(protocol, **new),
            "texts": keyed(id=TEXT, **new),
            "nest": nested("b", "a") if new else nested("a"),
            "twin": keyed(o=objects("na_e", "NA_E") if new else objects("na_e")),
            "later": keyed(**({"x": {"type": "null"}} if new else {})),
        }

    def log(id: int, v: str | None, at: int) -> list[Any]:
        return ["log", {"id": id, position: at, **({"v": v} if v else {mark: GONE})}]

    def row(name: str, id: Any, v: str, n: int, **more: Any) -> list[Any]:
        return [name, {"id": id, "v": v, "n": n, **more}]

    here = Reported(site(form), protocol, **streams())
    here.sends(
        *(log(i, "old", 172674661100006716 + i) for i in range(4)),
        *(row("texts", key, "old", 1) for key in KEYS),
        row("nest", 1, "old", 1, o={"a": "1"}, l=[{"a": "1"}]),
        row("nest", 2, "old", 1, o={"a": "1"}, l=None),
        row("nest", 3, "old", 1, o=None, l=[None]),
        row("nest", 4, "old", 1, o=None, l=None),
        row("nest", 5, "old", 1, o={"a": "5"}, l=[]),
        row("twin", 1, "old", 1, o={"na_e": "1"}),
        row("later", 1, "old", 1),
    )  # fmt: skip
    here.streams = streams(more=TEXT)
    done = here.sends(
        log(1, "new", 5), log(2, None, 6), log(2, "again", 6), log(3, None, 6),
        *(row("texts", key, "new", 2, more="m") for key in KEYS[::2]),
        row("nest", 1, "new", 2, o=None, l=None),
        row("nest", 2, "new", 2, o={"b": "2"}, l=[{"b": "2", "a": None}]),
        row("nest", 3, "new", 2, o={"a": None, "b": None}, l=[]),
        row("twin", 2, "new", 2, o={"na_e": "2", "NA_E": "2N"}),
        row("later", 2, "new", 2, x=None),
    )  # fmt: skip
    done.noted("twin", "keep only the fields that they have")
    here.streams["later"] = keyed(x=TIME)
    here.sends(row("later", 3, "new", 3, x=YEAR))
    assert here.rows("log", "id", "v") == [(0, "old"), (1, "new"), (2, "again")]
    texts = [(key, "old" if i % 2 else "new") for i, key in enumerate(KEYS)]
    assert here.rows("texts", "id", "v") == sorted(texts, key=repr)
    assert here.rows("nest", "id", "o", "l") == [
        (1, None, None),
        (2, {"a": None, "b": "2"}, [{"a": None, "b": "2"}]),
        (3, {"a": None, "b": None}, []),
        (4, None, None),
        (5, {"a": "5", "b": None}, []),
    ]
    assert here.rows("twin", "id", "o") == [(1, {"na_e": "1"}), (2, {"na_e": "2"})]
    assert [v.strip('"') if v else v for _, v in here.rows("later", "id", "x")] == [
        None,
        None,
        YEAR,
    ]

"""L9: a value that its column does not take is kept as text in its row, and a field of an object
keeps its property (reports: PyAirbyte 232, airbyte 4729 and 5355; dlt 2385)."""

from collections.abc import Callable
from typing import Any

import pytest
from pipelines import Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
TEXT, INTEGER = {"type": "string"}, {"type": "integer"}


def stream(*names: str, price: dict[str, Any]) -> dict[str, Any]:
    inner = {"type": "object", "properties": dict.fromkeys(names, TEXT)}
    properties = {
        "seq": INTEGER,
        "price": price,
        "lines": {"type": "array", "items": inner},
        "home": {"type": "object", "properties": {"the place": inner}},
    }
    return {
        "name": "t",
        "json_schema": {"type": "object", "properties": properties},
        "supported_sync_modes": ["full_refresh"],
    }


def steps(*records: dict[str, Any]) -> list[dict[str, Any]]:
    sent = [{"record": {"stream": "t", "data": data}} for data in records]
    return [*sent, {"status": {"stream": "t", "status": "COMPLETE"}}]


def nested(seq: int, price: Any, **zips: str) -> dict[str, Any]:
    values = {name.replace("_or_", " "): text for name, text in zips.items()}
    return {"seq": seq, "price": price, "lines": [values], "home": {"the place": values}}


def reasons(row: dict[str, Any]) -> list[str]:
    return [entry["reason"] for entry in row["_airbyte_meta"]["changes"]]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_l9_texts_and_nested_names_are_kept_from_run_to_run(site: MakeSite, format: str) -> None:
    here = site(format)
    append = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}

    def run(names: list[str], price: dict[str, Any], *records: dict[str, Any]) -> Any:
        stub = {"streams": [stream(*names, price=price)], "steps": steps(*records)}
        return here.run(stub, defaults=append)

    one = nested(1, 7, zip_or_code="OLD1")
    first = run(["zip code"], INTEGER, one, {"seq": 2, "price": "12,50 EUR"})
    first.noted("1 value of t.price did not fit integer", "change list")
    # "zip code" goes away, and "zip_code" comes, whose cleaned name is the same
    run(["zip_code"], TEXT, nested(3, "9", zip_code="NEW3"), {"seq": 4, "price": "n/a " * 500})
    run(["zip code", "zip_code"], INTEGER, nested(5, 5, zip_or_code="OLD5", zip_code="NEW5"))
    rows = here.rows("t")
    assert [row["price"] for row in rows] == [7, None, 9, None, 5]
    assert reasons(rows[1]) == ["DESTINATION_TYPECAST_ERROR: 12,50 EUR"]
    (long,) = reasons(rows[3])
    assert long.startswith("DESTINATION_TYPECAST_ERROR: n/a n/a ")
    assert long.endswith("\u2026")
    assert len(long.partition(": ")[2].encode()) <= 1024
    for objects in (
        [row["home"]["the_place"] for row in rows if row["home"]],
        [row["lines"][0] for row in rows if row["lines"]],
    ):
        other = next(name for name in objects[-1] if name != "zip_code")
        assert [o.get("zip_code") for o in objects] == ["OLD1", None, "OLD5"]
        assert [o.get(other) for o in objects] == [None, "NEW3", "NEW5"]

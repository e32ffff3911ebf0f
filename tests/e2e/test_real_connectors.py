"""Real, unmodified sources from the package registry, through the command line and into tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import Site

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

MakeSite = Callable[..., Site]
FAKER = "airbyte:source-faker@7.2.1"
HARDCODED = "airbyte:source-hardcoded-records@0.0.48"
FAKER_CONFIG = {"count": 200, "seed": 1, "always_updated": False, "parallelism": 1}
STREAMS = ["products", "purchases", "users"]


@pytest.fixture
def real(site: MakeSite, connector_environments: Path) -> MakeSite:
    def make(format: str = "parquet") -> Site:
        here = site(format)
        return here.with_connectors(connector_environments)

    return make


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        ("parquet", {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}),
        ("delta", {}),
    ],
)
def test_faker_lands_and_a_second_run_brings_what_is_new(
    real: MakeSite, kind: str, defaults: dict[str, Any]
) -> None:
    here = real(kind)
    asked = {"use": FAKER, "config": FAKER_CONFIG, "defaults": defaults}
    first = here.run(**asked)
    assert (first.status, first.guarantee) == ("succeeded", "exactly-once"), first.error
    read = {s.name: s.read for s in first.report.streams}
    assert sorted(read) == STREAMS
    assert (read["users"], read["products"]) == (200, 100)
    for name in STREAMS:
        ids = [row["id"] for row in here.rows(name, "id")]
        assert len(ids) == len(set(ids)) == read[name]
    user = here.rows("users", "id")[0]
    assert isinstance(user["age"], int)
    assert user["created_at"].tzinfo is not None
    assert set(user["address"]) >= {"city", "postal_code"}
    assert user["_airbyte_meta"]["changes"] == []
    second = here.run(**asked)
    assert second.status == "succeeded", second.error
    full = bool(defaults.get("sync_mode"))
    assert {s.name: s.read for s in second.report.streams} == (
        read if full else dict.fromkeys(STREAMS, 0)
    )
    for name in STREAMS:
        assert len(here.rows(name, "id")) == read[name]
    assert set(here.saved()) == set(STREAMS)


@pytest.mark.spark
def test_hardcoded_records_keep_their_deep_schema(real: MakeSite) -> None:
    here = real()
    ran = here.run(use=HARDCODED, config={"count": 20})
    assert ran.status == "succeeded", ran.error
    names = {s.name for s in ran.report.streams}
    assert "products" in names
    for stream in ran.report.streams:
        assert (stream.status, stream.rejected) == ("complete", 0)
        assert stream.read == stream.committed == 20
    assert not [n for n in ran.notes if "did not fit" in n]
    for name in names:
        rows = here.rows(name, "_airbyte_raw_id")
        assert len(rows) == 20
        assert all(row["_airbyte_meta"]["changes"] == [] for row in rows)


def test_spec_check_discover_and_preview_by_the_command_line(
    quiet: Site, connector_environments: Path
) -> None:
    here = quiet.with_connectors(connector_environments)
    for connector in (FAKER, HARDCODED):
        spec = here.cli("spec", connector, "--json")
        assert spec.code == 0, spec.err
        assert "count" in spec.json["config_schema"]["properties"]
    asked = (FAKER, "--config", '{"count": 5}', "--json")
    assert here.cli("check", *asked).json["status"] == "succeeded"
    found = [s["name"] for s in here.cli("discover", *asked).json["streams"]]
    assert sorted(found) == STREAMS
    shown = here.cli("preview", *asked, "--stream", found[0], "--limit", "2")
    assert shown.code == 0, shown.err
    assert len(shown.json["rows"]) == 2
    wrong = here.cli("check", FAKER, "--config", '{"count": "many"}', "--json")
    assert wrong.code == 2
    assert "count" in str(wrong.error)
    assert [e["connector"] for e in here.cli("list", "--json").json]

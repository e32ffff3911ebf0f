"""L6: `--recreate` of incremental streams. The rows of a table stay until the stream is complete,
whatever becomes of the run; its state stays too, and later runs go on with the refresh.
"""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipelines import NAME, Ran, Site

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MakeSite = Callable[..., Site]
STUB = Path(__file__).parents[1] / "stubs" / "refresh_source.py"
STREAMS = [
    {"name": "orders", "mode": "incremental_append_dedup"},
    {"name": "events", "mode": "incremental_append"},
]
OLD = [(n, "as of 10") for n in range(1, 11)]


class Refreshed:
    """A pipeline from the stub, whose tables had ten rows each."""

    def __init__(self, site: Site, protocol: str) -> None:
        self.site = site
        self._use = f"{protocol}:{sys.executable} {STUB} {protocol}"
        self._journal = site.folder / "given.jsonl"

    def run(self, recreate: bool = False, streams: Any = None, **config: Any) -> Ran:
        return self.site.run(
            use=self._use,
            config={"journal": str(self._journal), **config},
            streams=streams or STREAMS,
            recreate=recreate,
            load={"max_pending_time": "1s"},
        )

    def rows(self, stream: str) -> list[tuple[int, str]]:
        return sorted((r["id"], r["text"]) for r in self.site.rows(stream, order="id"))

    @property
    def given(self) -> dict[str, int]:
        """What the last read was given of each stream."""
        return json.loads(self._journal.read_text().splitlines()[-1])


@pytest.mark.parametrize(("protocol", "format"), [("airbyte", "parquet"), ("singer", "delta")])
def test_L6_a_refresh_that_fails_leaves_the_table_and_daily_runs_go_on_with_it(
    site: MakeSite, format: str, protocol: str
) -> None:
    here = Refreshed(site(format), protocol)
    assert here.run(top=10).exit_code == 0
    assert here.rows("orders") == here.rows("events") == OLD
    failed = here.run(recreate=True, top=12, gone=[3], die=7)  # a state of 6, then 7 and 8
    assert failed.exit_code != 0
    assert here.rows("orders") == here.rows("events") == OLD
    failed.noted("orders", "its refresh is not complete", f"state reset {NAME}")
    shown = here.site.cli("state", "show", NAME, "--json").json
    assert [(r["name"], r["run"]) for r in shown["refreshes"]] == [
        ("events", failed.report.run), ("orders", failed.report.run),
    ]  # fmt: skip
    assert "10" in json.dumps(shown["streams"]) and "6" not in json.dumps(shown["streams"])

    daily = here.run(top=12, gone=[3])
    assert daily.exit_code == 0, daily.error
    assert daily.noted("orders", "pending since run", failed.report.run)
    assert here.given == {"orders": 6}  # where the source was; the other begins
    now = [(n, "as of 12") for n in range(1, 13) if n != 3]
    assert here.rows("orders") == here.rows("events") == now
    assert here.run(top=12).exit_code == 0
    assert here.given == {"orders": 12, "events": 12}
    assert here.rows("orders") == here.rows("events") == now
    assert "refreshes" not in here.site.cli("state", "show", NAME, "--json").json


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_L7_a_stream_of_the_same_source_goes_on_while_another_waits(
    site: MakeSite, protocol: str
) -> None:
    here = Refreshed(site("parquet"), protocol)
    here.run(top=10)
    assert here.run(recreate=True, streams=STREAMS[:1], top=12, die=5).exit_code != 0
    assert here.run(streams=STREAMS[1:], top=13).exit_code == 0
    assert here.given.get("events") == 10
    assert here.rows("events") == [*OLD, *((n, "as of 13") for n in range(11, 14))]
    assert here.rows("orders") == OLD
    assert here.run(top=13).exit_code == 0
    assert here.given == {"orders": 4, "events": 13}
    assert [n for n, _ in here.rows("orders")] == list(range(1, 14))
    assert here.rows("events") == [*OLD, *((n, "as of 13") for n in range(11, 14))]


@pytest.mark.parametrize("protocol", ["airbyte", "singer"])
def test_L6_a_cancelled_refresh_leaves_rows_and_state(site: MakeSite, protocol: str) -> None:
    here = Refreshed(site("delta"), protocol)
    here.run(top=10)
    here.run(recreate=True, streams=STREAMS[1:], top=12, die=7)
    cancelled = here.site.cli("state", "reset", NAME, "--cancel-refresh", "events", "--json")
    assert cancelled.code == 0, cancelled.out
    assert "refreshes" not in cancelled.json
    again = here.site.cli("state", "reset", NAME, "--cancel-refresh", "events", "--json")
    assert again.error["code"] == "state.no_refresh"
    assert here.run(top=12).exit_code == 0
    assert here.given == {"orders": 10, "events": 10}
    assert here.rows("events") == [*OLD, (11, "as of 12"), (12, "as of 12")]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_L6_readers_see_the_old_rows_until_a_refresh_that_goes_well_is_whole(
    site: MakeSite, format: str
) -> None:
    here = Refreshed(site(format), "airbyte")
    here.run(top=10)
    ping, pong = here.site.folder / "ping", here.site.folder / "pong"
    seen: list[list[tuple[int, str]]] = []

    def read() -> None:
        for _ in range(600):
            if ping.exists():
                break
            threading.Event().wait(0.05)
        threading.Event().wait(4.0)  # four times as long as rows wait for a load
        seen.extend([here.rows("orders"), here.rows("events")])
        pong.touch()

    reader = threading.Thread(target=read)
    reader.start()
    ran = here.run(recreate=True, top=14, ping=str(ping), pong=str(pong))
    reader.join()
    assert ran.exit_code == 0 and seen == [OLD, OLD]
    assert here.rows("orders") == here.rows("events") == [(n, "as of 14") for n in range(1, 15)]

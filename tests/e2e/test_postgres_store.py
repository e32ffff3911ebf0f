"""Runs whose store is on a Postgres that stops, restarts, ends their sessions or is reached no more
(L1, L11, L12): short outages are outlasted with every row once, longer ones end the run in bounded
time with an error that says what next, and the next run completes it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e_harness import Place, end_all
from pipelines import Heard, Site
from postgres_kills import on_postgres

import postgres_cluster
from penstock.config.load import load_pipeline
from penstock.engine.channel import heartbeat
from penstock.engine.run import run as run_module
from penstock.engine.run.start import run_pipeline
from penstock.store import patience
from penstock.store.contract import Store
from penstock.store.open import open_store
from postgres_cluster import LossyPort, running_cluster, server_processes, sessions, stopped

pytestmark = pytest.mark.spark

RECORDS = 100
SOURCE = {"streams": 1, "records": RECORDS, "delay": 0.02, "state_every": 10}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with running_cluster() as folder:
        yield folder


@pytest.fixture
def quick(shared_spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second in place of the 40 that a server may be silent."""
    del shared_spark
    monkeypatch.setattr(patience, "SILENT_SECONDS", 1.0)


class OnPostgres(Site):
    """A pipeline whose store is at ``url``."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, "parquet", **SOURCE)
        self.url = url

    def document(self, *args: Any, **sections: Any) -> dict[str, Any]:
        state = {"backend": "postgres", "url": self.url}
        return super().document(*args, state=state, **sections)

    @contextmanager
    def store(self) -> Iterator[Store]:  # type: ignore[override]
        opened = open_store(self.url)
        try:
            yield opened
        finally:
            opened.close()

    def await_read(self) -> None:
        deadline = time.monotonic() + 120
        while not self.journal() and time.monotonic() < deadline:
            time.sleep(0.02)


def site_of(folder: Path, cluster: str, lossy: LossyPort | None = None) -> OnPostgres:
    import psycopg

    name = f"s{abs(hash(folder))}"
    with psycopg.connect(f"host={cluster} user=penstock dbname=postgres", autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {name}")
    at = f"penstock@/postgres?host={cluster}&"
    if lossy is not None:
        at = f"penstock@127.0.0.1:{lossy.port}/postgres?"
    return OnPostgres(folder / "site", f"postgresql://{at}options=-csearch_path%3D{name}")


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(120)


def assert_whole(site: OnPostgres) -> None:
    assert site.seqs("s0") == list(range(1, RECORDS + 1))
    assert site.saved()["s0"]["seq"] == RECORDS


@pytest.mark.parametrize("how", ["restart", "server stopped", "session stopped", "bytes lost"])
def test_l11_a_run_outlasts_a_short_outage_of_its_store(
    how: str, tmp_path: Path, cluster: str, quick: None
) -> None:
    lossy = LossyPort(cluster) if how == "bytes lost" else None
    site = site_of(tmp_path, cluster, lossy)

    def outage() -> None:
        site.await_read()
        if how == "restart":
            postgres_cluster.restart(cluster)
            return
        away: AbstractContextManager[None]
        if how == "server stopped":
            away = stopped(server_processes(cluster))
        elif how == "session stopped":
            away = stopped(sessions(cluster))
        else:
            assert lossy is not None
            away = lossy.losing()
        with away:
            time.sleep(4)

    with beside(outage):
        ran = site.run()
    assert ran.exit_code == 0, ran.error
    assert_whole(site)
    assert site.run().exit_code == 0
    assert_whole(site)
    if lossy is not None:
        lossy.close()


def test_l11_a_store_that_stays_away_ends_the_run_and_the_next_one_completes_it(
    tmp_path: Path, cluster: str, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.store.open.RUN_SECONDS", 3.0)
    monkeypatch.setattr(run_module, "LEASE_TTL", 5.0)  # this process stays, and its lease with it
    monkeypatch.setattr(heartbeat, "LEASE_TTL", 5.0)
    monkeypatch.setattr(heartbeat, "RENEW_SECONDS", 1.0)
    site = site_of(tmp_path, cluster)
    pipeline = load_pipeline(site.write(), env={})
    at: list[float] = []
    with ExitStack() as away:

        def outage() -> None:
            site.await_read()
            away.enter_context(stopped(server_processes(cluster)))
            at.append(time.monotonic())

        with beside(outage):
            report = run_pipeline(pipeline, site.home, observer=Heard())
        assert time.monotonic() - at[0] < 40
    assert report.exit_code == 6 and report.error is not None, report
    assert report.error["code"] == "state.unreachable", report.error
    assert "the same command again" in report.error["hint"]
    time.sleep(5)
    assert site.run().exit_code == 0
    assert_whole(site)


def test_l11_the_first_sigterm_ends_a_run_whose_store_is_stopped(tmp_path: Path) -> None:
    """A program of its own, with the bounds that users have."""
    with on_postgres() as cluster:
        place = Place(tmp_path, "parquet", config={"records": 200, "delay": 0.05, "streams": 1})
        running = place.start()
        place.process("stub_source.py", "read")
        with stopped(server_processes(cluster)):
            time.sleep(1)
            at = time.monotonic()
            os.kill(running.process.pid, signal.SIGTERM)
            ended = running.wait(60)
            assert time.monotonic() - at < 30, ended.told[-2000:]
        assert ended.code == 7, (ended.code, ended.told[-2000:])
        again = place.run(delay=0)
        assert again.code == 0, again.told[-2000:]
        assert [seq for _, seq in place.rows("s0")] == list(range(1, 201))
        end_all()

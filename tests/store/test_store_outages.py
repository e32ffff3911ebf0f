"""L11, L12: a Postgres that stops, ends a session, restarts, or whose bytes are lost: every wait
ends, short outages are outlasted, and a write whose answer was lost is never done twice. The server
is a real one, and so are the signals."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import postgres_cluster
from penstock.errors import Cancelled, LeaseLost, StateError
from penstock.model.catalog import StreamId
from penstock.store import database, patience
from penstock.store.contract import Lease, Store
from penstock.store.keys import KeyAddress
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store, open_store_of_run
from penstock.store.task_keys import keys_url, open_keys
from postgres_cluster import LossyPort, running_cluster, server_processes, sessions, stopped

pytestmark = pytest.mark.dear

KEY = KeyAddress("pipeline", "", "k")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of these tests alone: they stop and restart it."""
    with running_cluster() as folder:
        yield folder


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(patience, "LAST_SECONDS", 1.0)


_made = iter(range(1000))


@pytest.fixture
def url(cluster: str) -> str:
    name = f"o{next(_made)}"
    with psycopg.connect(f"host={cluster} user=penstock dbname=postgres", autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {name}")
    return f"postgresql://penstock@/postgres?host={cluster}&options=-csearch_path%3D{name}"


@pytest.fixture
def lossy(cluster: str) -> Iterator[LossyPort]:
    port = LossyPort(cluster)
    yield port
    port.close()


def by_port(url: str, lossy: LossyPort) -> str:
    options = url.partition("&")[2]
    return f"postgresql://penstock@127.0.0.1:{lossy.port}/postgres?{options}"


class OfRun:
    """A store as a run has it."""

    def __init__(self, url: str) -> None:
        self.stop = threading.Event()
        self.log: list[str] = []
        self.store: Store = open_store_of_run(url, self.stop.is_set, self.log.append)
        self.lease: Lease = self.store.acquire("shop", this_holder("r"), 600)


@pytest.fixture
def of_run(url: str) -> Iterator[OfRun]:
    made = OfRun(url)
    yield made
    made.store.close()


def later(seconds: float, work: Callable[[], object]) -> threading.Thread:
    def wait() -> None:
        time.sleep(seconds)
        work()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_l11_a_call_outlasts_a_restart_of_the_server(of_run: OfRun, cluster: str) -> None:
    assert of_run.store.new_epoch(of_run.lease, 0) == 1
    for mode in ("fast", "immediate"):
        postgres_cluster.restart(cluster, mode)
        before = of_run.store.last_epoch("shop")
        assert of_run.store.new_epoch(of_run.lease, 0) == before + 1
    assert any("trying again" in text for text in of_run.log)
    assert any("answers again" in text for text in of_run.log)


def test_l11_a_call_outlasts_a_server_that_is_away_for_seconds(of_run: OfRun, cluster: str) -> None:
    """SIGKILL of all its processes: refused connections, then "starting up", then it is back."""
    postgres_cluster.kill_server(cluster)
    thread = later(2, lambda: postgres_cluster.start_again(cluster))
    assert of_run.store.new_epoch(of_run.lease, 0) == 1
    thread.join()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_l11_a_call_outlasts_the_end_of_its_session(
    of_run: OfRun, cluster: str, how: signal.Signals
) -> None:
    """pg_terminate_backend, and a backend that crashes: the server restarts all of them."""
    of_run.store.new_epoch(of_run.lease, 0)
    (pid,) = sessions(cluster)
    os.kill(pid, how)
    assert of_run.store.new_epoch(of_run.lease, 0) == 2


def test_l11_a_session_that_is_stopped_is_left(of_run: OfRun, cluster: str) -> None:
    of_run.store.new_epoch(of_run.lease, 0)
    with stopped(sessions(cluster)):
        began = time.monotonic()
        assert of_run.store.new_epoch(of_run.lease, 0) == 2
        assert time.monotonic() - began < 6


def test_l11_a_server_that_is_stopped_is_waited_for(of_run: OfRun, cluster: str) -> None:
    of_run.store.new_epoch(of_run.lease, 0)
    pids = server_processes(cluster)
    with stopped(pids):
        thread = threading.Thread(target=lambda: of_run.store.new_epoch(of_run.lease, 0))
        thread.start()
        time.sleep(1.5)
    thread.join(20)
    assert not thread.is_alive()
    assert of_run.store.last_epoch("shop") == 2, "one call, one epoch"


def test_l11_a_server_that_stays_stopped_ends_the_call_within_the_bound(
    of_run: OfRun, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_run.store.patience.seconds = 2  # type: ignore[attr-defined]
    of_run.store.new_epoch(of_run.lease, 0)
    with stopped(server_processes(cluster)):
        for most in (12, 6):  # what is tried after the bound has passed is given up sooner
            began = time.monotonic()
            with pytest.raises(StateError) as given_up:
                of_run.store.new_epoch(of_run.lease, 0)
            assert time.monotonic() - began < most
            assert given_up.value.code == "state.unreachable" and given_up.value.exit_code == 6
            assert "tried again" in given_up.value.message
            assert f"`pg_isready -h {cluster}`" in str(given_up.value.hint)
    assert of_run.store.new_epoch(of_run.lease, 0) == 2


def test_l11_the_first_stop_ends_a_wait_for_a_stopped_server(of_run: OfRun, cluster: str) -> None:
    of_run.store.new_epoch(of_run.lease, 0)
    with stopped(server_processes(cluster)):
        thread = later(0.5, of_run.stop.set)
        began = time.monotonic()
        with pytest.raises(Cancelled):
            of_run.store.new_epoch(of_run.lease, 0)
        assert time.monotonic() - began < 10
        thread.join()


def test_l11_the_first_ctrl_c_ends_a_verb_that_waits_for_a_stopped_server(
    url: str, cluster: str
) -> None:
    store = open_store(url)
    store.pipelines()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stopped(server_processes(cluster)):
            thread = later(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                store.pipelines()
            assert time.monotonic() - began < 2
            thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert store.pipelines() == []
    store.close()


def test_l11_lost_bytes_end_no_run_and_hold_no_lock(
    url: str, lossy: LossyPort, cluster: str
) -> None:
    """The sockets stay open, and the server's session waits inside its transaction, with the lock
    of the pipeline's row: the next connection ends it."""
    of_run = OfRun(by_port(url, lossy))
    lossy.lose_answers_after(b"penstock_names")  # in a transaction that has the lock
    began = time.monotonic()
    assert of_run.store.new_epoch(of_run.lease, 0) == 1
    assert time.monotonic() - began < 10
    with lossy.losing():
        thread = threading.Thread(target=lambda: of_run.store.new_epoch(of_run.lease, 0))
        thread.start()
        time.sleep(1.2)
    thread.join(20)
    assert not thread.is_alive() and of_run.store.last_epoch("shop") == 2
    of_run.store.close()


def test_l11_a_stopped_session_that_has_the_lock_ends_the_call_within_the_bound(
    url: str, lossy: LossyPort, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing ends a process that is stopped; the error says where to look."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 1)
    monkeypatch.setattr(patience, "SILENT_SECONDS", 4.0)
    of_run = OfRun(by_port(url, lossy))
    of_run.store.patience.seconds = 12  # type: ignore[attr-defined]
    lossy.lose_answers_after(b"penstock_names")  # in a transaction that has the lock
    began = time.monotonic()
    failed: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: failed.append(_failure(of_run)))
    thread.start()
    assert lossy.answer_lost.wait(10)
    with stopped(sessions(cluster)):
        thread.join(40)
        assert time.monotonic() - began < 25
    error = failed[0]
    assert isinstance(error, StateError) and error.code == "state.busy", error
    assert error.hint is not None and "pg_stat_activity" in error.hint
    assert of_run.store.new_epoch(of_run.lease, 0) == 1
    of_run.store.close()


def test_l12_a_commit_without_an_answer_is_done_once(url: str, lossy: LossyPort) -> None:
    """The server commits, and its answer is lost."""
    of_run = OfRun(by_port(url, lossy))
    lossy.lose_answers_after(b"COMMIT")
    assert of_run.store.new_epoch(of_run.lease, 0) == 1
    assert of_run.store.last_epoch("shop") == 1
    users = StreamId(None, "users")
    lossy.lose_answers_after(b"COMMIT")
    assert of_run.store.new_generation(of_run.lease, [users]) == {users: 1}
    assert of_run.store.generations("shop") == {users: 1}
    lossy.lose_answers_after(b"COMMIT")
    of_run.store.renew(of_run.lease, 600)
    of_run.store.close()


def test_l12_a_call_that_is_repeated_has_its_arguments_again(url: str, lossy: LossyPort) -> None:
    of_run = OfRun(by_port(url, lossy))
    users = StreamId(None, "users")
    lossy.lose_answers_after(b"INSERT INTO penstock_generations")
    assert of_run.store.new_generation(of_run.lease, iter([users])) == {users: 1}
    assert of_run.store.generations("shop") == {users: 1}
    of_run.store.close()


def test_l12_a_lease_whose_answer_was_lost_is_not_another_runs(url: str, lossy: LossyPort) -> None:
    store = open_store(by_port(url, lossy))
    lossy.lose_answers_after(b"COMMIT")
    lease = store.acquire("shop", this_holder("r"), 600)
    assert store.new_epoch(lease, 0) == 1
    lossy.lose_answers_after(b"COMMIT")
    store.release(lease)
    with pytest.raises(LeaseLost):
        store.new_epoch(lease, 0)
    store.close()


def test_l12_a_write_that_is_repeated_compares_the_lease_again(
    url: str, lossy: LossyPort, cluster: str
) -> None:
    """Another run took the pipeline over while the answer was lost."""
    of_run = OfRun(by_port(url, lossy))
    of_run.store.new_epoch(of_run.lease, 0)
    other = open_store(url)
    with lossy.losing():
        failed: list[BaseException | None] = []
        thread = later(0, lambda: failed.append(_failure(of_run)))
        time.sleep(0.5)
        other.release(of_run.lease)
        other.acquire("shop", this_holder("other"), 600)
        time.sleep(1)
    thread.join(20)
    assert isinstance(failed[0], LeaseLost)
    assert other.last_epoch("shop") == 1
    other.close()
    of_run.store.close()


def _failure(of_run: OfRun) -> BaseException | None:
    try:
        of_run.store.new_epoch(of_run.lease, 0)
    except BaseException as e:
        return e
    return None


@pytest.mark.parametrize(
    ("refuse", "mend"),
    [
        ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
    ],
)
def test_l11_a_server_that_refuses_for_a_while_is_asked_again(
    url: str, cluster: str, refuse: str, mend: str
) -> None:
    """A primary that became read-only (failover), and one whose connections are all taken."""
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(f"host={cluster} user=penstock dbname=postgres", autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {schema} LOGIN")
        admin.execute(f"GRANT ALL ON SCHEMA {schema} TO {schema}")
        of_run = OfRun(url.replace("penstock@", f"{schema}@"))
        admin.execute(f"ALTER ROLE {schema} {refuse}")
        for pid in sessions(cluster):
            os.kill(pid, signal.SIGTERM)
        began = time.monotonic()
        thread = later(1.5, lambda: admin.execute(f"ALTER ROLE {schema} {mend}"))
        assert of_run.store.new_epoch(of_run.lease, 0) == 1
        assert time.monotonic() - began > 1
        thread.join()
        of_run.store.close()


def test_l11_what_no_second_try_mends_is_told_at_once(cluster: str) -> None:
    began = time.monotonic()
    with pytest.raises(StateError) as refused:
        open_store(f"postgresql://penstock@/nowhere?host={cluster}")
    assert refused.value.code == "state.failed" and "does not exist" in refused.value.message
    assert time.monotonic() - began < 5


def test_l11_a_store_that_is_not_there_is_refused_within_the_bound_of_a_verb(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(patience, "ASKING_SECONDS", 1.0)
    with pytest.raises(StateError) as refused:
        open_store(f"postgresql://penstock@/postgres?host={tmp_path}")
    assert refused.value.code == "state.unreachable"


# -- connectors' keys


def test_l11_a_write_of_a_key_outlasts_an_outage_and_is_done_once(
    url: str, lossy: LossyPort, cluster: str
) -> None:
    of_run = OfRun(url)
    of_run.store.begin_keys(of_run.lease, "t")
    port = open_keys(keys_url(by_port(url, lossy)), "shop", "t")
    port.put(KEY, "1")
    lossy.lose_answers_after(b"COMMIT")
    assert port.compare_and_swap(KEY, "1", "2"), "the swap was done, and was not done twice"
    assert port.get(KEY) == "2"
    lossy.lose_answers_after(b"COMMIT")
    assert port.delete(KEY)
    assert port.get(KEY) is None
    postgres_cluster.restart(cluster)
    port.put(KEY, "3")
    with stopped(sessions(cluster)):
        port.put(KEY, "4")
    assert port.get(KEY) == "4"
    port.close()
    of_run.store.close()

"""Real stores for the tests: a SQLite file, a private Postgres cluster, the in-memory twin."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.store.contract import Store
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from postgres_cluster import running_cluster


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[str]:
    """The folder of a running cluster's socket; its superuser is ``penstock``, without password."""
    with running_cluster() as folder:
        yield folder


_numbers = itertools.count()


def _new_home(cluster: str) -> str:
    """The URL of an empty schema of its own (a database each would be 7 MB)."""
    import psycopg

    name = f"t{next(_numbers)}"
    with psycopg.connect(f"host={cluster} user=penstock dbname=postgres", autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {name}")
    return f"postgresql://penstock@/postgres?host={cluster}&options=-csearch_path%3D{name}"


@pytest.fixture
def postgres_url(postgres_cluster: str) -> str:
    """Where nothing is yet."""
    return _new_home(postgres_cluster)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh store may be opened, by any number of processes."""
    if request.param == "sqlite":
        return str(tmp_path / "home" / "state.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Makes independent, empty stores of one kind."""
    opened: list[Store] = []

    def make() -> Store:
        if request.param == "memory":
            opened.append(MemoryStore())
        elif request.param == "sqlite":
            opened.append(open_store(tmp_path / f"state{len(opened)}.db"))
        else:
            cluster: str = request.getfixturevalue("postgres_cluster")
            opened.append(open_store(_new_home(cluster)))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def store(new_store: Callable[[], Store]) -> Store:
    return new_store()

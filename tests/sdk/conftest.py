"""Fixtures of the SDK's tests."""

from collections.abc import Iterator

import pytest

from postgres_cluster import running_cluster


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[str]:
    """The folder of a running cluster's socket; its superuser is ``penstock``, without password."""
    with running_cluster() as folder:
        yield folder

"""The lease of a sync, which is looked at before what tasks wrote is committed (L12)."""

from pathlib import Path
from typing import Any

import pytest

from penstock.engine.deliver.session import SyncSession
from penstock.errors import LeaseLost
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store


def test_a_lease_that_another_run_has_is_lost_L12(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state.db")
    first = store.acquire("shop", this_holder("run-1"), 60)
    none: Any = None
    session = SyncSession(first, store, none, none, none, none, none)
    session.prove_lease()
    store.release(first)
    with pytest.raises(LeaseLost, match="shop"):
        session.prove_lease()
    store.acquire("shop", this_holder("run-2"), 60)
    with pytest.raises(LeaseLost, match="run-2"):
        session.prove_lease()
    store.close()

"""A pipeline as the store knows it: whose states it keeps (L1: a source is given its own)."""

import pytest

from penstock.config.home import Home
from penstock.connectors.reference import parse_ref
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import OpenPipeline, open_known
from penstock.engine.plan.source_protocol import refuse_other_protocol
from penstock.errors import StateError
from penstock.model.state import StateScope, StateType, StoredState
from penstock.store.contract import Lease, StateSource
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store

LEGACY = StoredState(StateScope(StateType.legacy), '{"a":1}')


def store_of(protocol: str) -> tuple[MemoryStore, Lease]:
    store = MemoryStore()
    lease = store.acquire("shop", this_holder("r"), 60)
    store.remember_source(lease, protocol, f"{protocol}:x")
    store.replace_states(lease, [LEGACY])
    return store, lease


def test_states_of_another_protocol_are_refused() -> None:
    store, lease = store_of("other")
    with pytest.raises(StateError) as refused:
        refuse_other_protocol(store, "shop", "airbyte")
    assert refused.value.code == "state.other_protocol"
    assert "is of another protocol" in refused.value.message
    assert "other" in refused.value.message and "airbyte" in refused.value.message
    assert "state reset shop" in (refused.value.hint or "")
    refuse_other_protocol(store, "shop", "other")
    refuse_other_protocol(store, "never", "airbyte")
    store.replace_states(lease, [])
    refuse_other_protocol(store, "shop", "airbyte")


def test_a_bare_name_tells_its_protocol(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    store = open_store(home.state_url())
    lease = store.acquire("shop", this_holder("r"), 60)
    with open_known("shop", home) as known, pytest.raises(StateError) as unknown:
        known.package()
    assert unknown.value.code == "state.protocol_unknown"
    store.remember_source(lease, "airbyte", "airbyte:source-x")
    with open_known("shop", home) as known:
        assert known.package().name == "airbyte"
    store.release(lease)
    store.close()


def test_a_state_that_a_user_brings_says_whose_it_is() -> None:
    store = MemoryStore()
    known = OpenPipeline("shop", store, Home(), "shop", source=parse_ref("airbyte:source-x"))
    states.replace(known, {"cursor": 1}, force=True)
    assert store.source_of("shop") == StateSource("airbyte", "airbyte:source-x")
    states.reset(known)
    assert store.states("shop") == []


def test_a_state_cannot_be_brought_over_one_of_another_protocol() -> None:
    store, lease = store_of("other")
    store.release(lease)
    known = OpenPipeline("shop", store, Home(), "shop", source=parse_ref("airbyte:source-x"))
    with pytest.raises(StateError) as refused:
        states.replace(known, {"cursor": 1}, force=True)
    assert refused.value.code == "state.other_protocol"
    assert store.states("shop") == [LEGACY]

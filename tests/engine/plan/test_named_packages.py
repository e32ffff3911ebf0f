"""L1: a name is exactly that package, and a pipeline that ran when it could mean another one keeps
its own."""

from penstock.connectors.reference import parse_ref
from penstock.engine.plan.named_packages import meant, other_name, used
from penstock.engine.plan.source_protocol import refuse_other_source
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered

SHORT, FULL = "singer:tap-x", "singer:meltanolabs-tap-x"


def ran_before(reference: str) -> MemoryStore:
    """A store as code wrote it that stored no packages."""
    store = MemoryStore()
    lease = store.acquire("shop", this_holder("run"), 60)
    store.remember_source(lease, "singer", reference)
    store.release(lease)
    return store


def stored(store: MemoryStore, packages: dict[str, str]) -> MemoryStore:
    lease = store.acquire("shop", this_holder("run"), 60)
    store.remember(lease, Remembered(packages={**used(()), **packages}))
    store.release(lease)
    return store


def test_a_new_pipeline_means_the_named_package() -> None:
    assert meant(MemoryStore(), "shop", SHORT) == {}
    assert meant(ran_before(SHORT), "other", SHORT) == {}


def test_l1_a_pipeline_of_before_means_what_it_meant_until_that_is_stored() -> None:
    store = ran_before(SHORT)
    assert (
        meant(store, "shop", SHORT) == meant(store, "shop", f"{SHORT}@1.0") == {"as_before": True}
    )
    assert meant(store, "shop", "singer:target-y") == {"as_before": True}  # its destination
    for use in ("singer:./tap", "airbyte:docker:x/source-y", "singer:git+https://h/tap-x.git"):
        assert meant(store, "shop", use) == {}
    stored(store, {SHORT: "meltanolabs-tap-x"})
    assert meant(store, "shop", f"{SHORT}@2.0") == {"package": "meltanolabs-tap-x"}
    assert meant(store, "shop", "singer:target-y") == {}  # named since


def test_a_pipeline_without_packages_is_not_of_before() -> None:
    store = stored(ran_before("singer:./tap"), {})
    assert meant(store, "shop", SHORT) == {}


def test_l1_the_full_name_of_a_package_goes_on_from_its_state() -> None:
    store = ran_before(SHORT)
    assert not other_name(store, "shop", SHORT, parse_ref(FULL))
    stored(store, {SHORT: "meltanolabs-tap-x"})
    refuse_other_source(store, "shop", parse_ref(FULL), None, sealed=lambda: True)
    assert other_name(store, "shop", FULL, parse_ref(SHORT))
    assert not other_name(store, "shop", SHORT, parse_ref("singer:pipelinewise-tap-x"))
    assert not other_name(store, "shop", SHORT, parse_ref("singer:./tap"))

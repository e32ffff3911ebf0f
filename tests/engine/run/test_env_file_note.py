"""Variables that ``.env`` beside a pipeline file gave are noted once, and not by dry runs alone."""

from msgspec.structs import replace

from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.run.env_file_note import new_names_note
from penstock.store.contract import Lease
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore

TEXT = "pipeline: shop\nsource: {use: x}\ndestination: {use: y}\n"


def with_names(*names: str) -> Pipeline:
    file = "etc/.env" if names else None
    return replace(parse_pipeline(TEXT, {}), env_file=file, env_file_names=names)


def begun() -> tuple[MemoryStore, Lease]:
    store = MemoryStore()
    return store, store.acquire("shop", this_holder("run"), 600)


def test_each_name_is_noted_once() -> None:
    store, lease = begun()
    assert new_names_note(with_names(), store, lease) is None
    first = new_names_note(with_names("TOKEN", "HOST"), store, lease)
    assert first is not None and first.startswith("etc/.env gave TOKEN, HOST, ")
    assert new_names_note(with_names("TOKEN", "HOST"), store, lease) is None
    more = new_names_note(with_names("HOST", "PORT"), store, lease)
    assert more is not None and more.startswith("etc/.env gave PORT, ")


def test_a_dry_run_leaves_the_note_to_the_run_after_it() -> None:
    store, lease = begun()
    for keep in (False, True):
        assert new_names_note(with_names("TOKEN"), store, lease, keep=keep) is not None
    assert new_names_note(with_names("TOKEN"), store, lease, keep=False) is None

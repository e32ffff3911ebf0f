"""An unnamed query's table at a connector has the name that one chose (issue 40 part 3);
pipelines of before keep theirs."""

import pytest

from penstock.config.command_line import pipeline_from_arguments
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.plan.model_target import KEPT_NAME, QUERY, ModelTarget, model_target
from penstock.model.catalog import StreamId
from penstock.model.types import RowSchema
from penstock.store.lock_holder import this_holder
from penstock.store.memory import MemoryStore
from penstock.store.remembered import Remembered

QUERIES = "spark:SELECT 1 AS id"


def piped(
    name: str = "shop.prod", use: str = "spark:SELECT 1 AS id", config: str = "{}"
) -> Pipeline:
    text = f"pipeline: {name}\nsource: {{use: '{use}', config: {config}}}\n"
    return parse_pipeline(f"{text}destination: {{use: 'singer:target-x'}}\n", {})


def test_a_new_pipeline_has_its_own_name_and_keeps_it() -> None:
    store = MemoryStore()
    found = model_target(piped(), store)
    assert found == ModelTarget("shop_prod")
    assert found.of(QUERY) == StreamId(None, "shop_prod")
    assert found.of(StreamId(None, "users")) == StreamId(None, "users")
    lease = store.acquire("shop.prod", this_holder("run"), 60)
    store.remember(lease, Remembered(model_name="shop_prod"))
    store.schema_versions(lease, {QUERY: RowSchema(())})
    assert model_target(piped(), store) == found


def test_a_pipeline_of_before_keeps_its_name_and_is_told_once() -> None:
    store = MemoryStore()
    lease = store.acquire("shop.prod", this_holder("run"), 60)
    store.schema_versions(lease, {QUERY: RowSchema(())})
    assert model_target(piped(), store) == ModelTarget("query", KEPT_NAME)
    store.remember(lease, Remembered(model_name="query"))
    assert model_target(piped(), store) == ModelTarget("query")


@pytest.mark.parametrize(
    ("use", "config"),
    [
        ("spark:SELECT 1 AS id", "{stream: contacts}"),
        ("spark:db.users", "{}"),
        ("singer:tap-x", "{}"),
    ],
)
def test_what_has_a_name_keeps_it(use: str, config: str) -> None:
    assert model_target(piped(use=use, config=config), MemoryStore()) is None


def test_without_a_chosen_name_it_stays() -> None:
    words = (QUERIES, "singer:target-x")
    assert model_target(pipeline_from_arguments(*words), MemoryStore()) is None
    named = pipeline_from_arguments(*words, name="contacts")
    assert model_target(named, MemoryStore()) == ModelTarget("contacts")

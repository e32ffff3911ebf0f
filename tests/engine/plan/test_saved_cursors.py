"""L1: whose cursor a stream goes on by, for every protocol's rules."""

from typing import Any

import pytest

from penstock.engine.plan.saved_cursors import SavedCursor, keep_cursor
from penstock.errors import ConfigError
from penstock.model.catalog import Stream, StreamId, SyncMode
from penstock.protocols import load
from penstock.protocols.contract import source_rules
from penstock.protocols.reading import StreamOverrides

SAVED = SavedCursor(("id",), "penstock state reset shop --stream users")
EACH = pytest.mark.parametrize("protocol", ["airbyte", "singer", "rapidbyte", "spark"])


def stream(*columns: str, default: str | None = None, **more: Any) -> Stream:
    schema = {"type": "object", "properties": {c: {"type": "integer"} for c in columns}}
    return Stream(
        id=StreamId(None, "users"),
        json_schema=schema,
        sync_modes=(SyncMode.full_refresh, SyncMode.incremental),
        default_cursor_field=(default,) if default else None,
        **more,
    )


def kept(protocol: str, of: Stream, **overrides: Any) -> Any:
    wanted = StreamOverrides(destination_sync_mode="append", **overrides)
    return keep_cursor(of, wanted, source_rules(load(protocol)), SAVED).cursor_field


@EACH
def test_a_cursor_that_the_user_chose_is_refused(protocol: str) -> None:
    of = stream("id", "at")
    chosen = {"cursor_field": ("at",), "sync_mode": "incremental"}
    with pytest.raises(ConfigError, match="its cursor has changed from id to at") as caught:
        kept(protocol, of, **chosen)
    assert SAVED.reset in (caught.value.hint or "")
    assert kept(protocol, of, cursor_field=("id",), sync_mode="incremental") == ("id",)
    assert kept(protocol, of, sync_mode="full_refresh") is None  # no state is given


@EACH
def test_without_a_choice_the_saved_one_stays(protocol: str) -> None:
    assert kept(protocol, stream("id", "at", default="at"), sync_mode="incremental") == ("id",)
    with pytest.raises(ConfigError, match="id is no longer a cursor of the stream"):
        kept(protocol, stream("at", default="at"), sync_mode="incremental")


def test_a_cursor_that_the_source_defines_is_its_own_affair() -> None:
    of = stream("id", "at", default="at", source_defined_cursor=True)
    assert kept("airbyte", of, sync_mode="incremental") is None
    assert kept("airbyte", of, sync_mode="incremental", cursor_field=("at",)) == ("at",)

"""All mode vocabularies become one (docs/architecture.md, config)."""

import pytest

from penstock.config import modes
from penstock.model.catalog import DestinationSyncMode as D
from penstock.model.catalog import SyncMode as S


@pytest.mark.parametrize(
    ("word", "sync", "destination"),
    [
        ("full_refresh", S.full_refresh, None),
        ("incremental", S.incremental, None),
        ("cdc", S.cdc, None),
        ("append", None, D.append),
        ("overwrite", None, D.overwrite),
        ("append_dedup", None, D.append_dedup),
        ("replace", None, D.overwrite),
        ("upsert", None, D.append_dedup),
        ("insert", None, D.append),
        ("update", None, D.append_dedup),
        ("merge", None, D.append_dedup),
        ("mirror", S.full_refresh, D.overwrite),
        ("FULL_TABLE", S.full_refresh, None),
        ("INCREMENTAL", S.incremental, None),
        ("LOG_BASED", S.cdc, None),
        ("append-only", None, D.append),
        ("full_refresh_overwrite", S.full_refresh, D.overwrite),
    ],
)
def test_every_word_has_one_meaning(word: str, sync: S | None, destination: D | None) -> None:
    assert modes.mode(word) == modes.Modes(sync, destination)


def test_A6_a_deduped_overwrite_replaces_and_a_history_is_kept() -> None:
    """Issue 9, A6: the first merged (rows gone at the source stayed), the second was type 1."""
    both = modes.mode("full_refresh_overwrite_deduped")
    assert both == modes.Modes(S.full_refresh, D.append_dedup, replaces=True)
    both = modes.mode("incremental-deduped-history")
    assert both == modes.Modes(S.incremental, D.append_dedup, history=True)
    with pytest.raises(modes.UnknownMode, match="a mode that goes with the key 'mode'"):
        modes.sync_mode("incremental_deduped_history")


@pytest.mark.parametrize(
    ("look_up", "word", "message"),
    [
        (modes.sync_mode, "incrementl",
         "'incrementl' is not a sync mode; did you mean 'incremental'?"),
        (modes.sync_mode, "upsert",
         "'upsert' is not a sync mode, but a mode that goes with the key 'mode'"),
        (modes.destination_sync_mode, "apend",
         "'apend' is not a destination sync mode; did you mean 'append'?"),
        (modes.mode, "upsret", "'upsret' is not a mode; did you mean 'upsert'?"),
        (modes.sync_mode, "xyzzy", "'xyzzy' is not a sync mode; known: full_refresh, incremental, "
         "cdc, full_table, log_based"),
    ],
)  # fmt: skip
def test_unknown_words_have_a_suggestion(look_up: object, word: str, message: str) -> None:
    assert callable(look_up)
    with pytest.raises(modes.UnknownMode) as caught:
        look_up(word)
    assert str(caught.value) == message


def test_contradictions_are_told() -> None:
    assert modes.contradiction("mirror", S.full_refresh, D.overwrite) is None
    assert modes.contradiction("upsert", S.incremental, None) is None
    assert modes.contradiction("upsert", None, D.append) == (
        "mode 'upsert' means destination_sync_mode append_dedup, but destination_sync_mode is "
        "append"
    )

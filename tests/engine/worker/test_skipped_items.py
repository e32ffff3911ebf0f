"""What the report says of lines and messages that were skipped, in words and with their key."""

import pytest

from penstock.engine.worker.skipped_items import skipped_note


@pytest.mark.parametrize(
    ("what", "count", "note"),
    [
        ("text_line", 1, "1 line that is no message of its protocol was skipped (text_line)"),
        ("blank_line", 2000, "2,000 empty lines were skipped (blank_line)"),
        (
            "stream_not_configured:eu.users", 3,
            "3 messages of eu.users, which this run does not sync, were skipped "
            "(stream_not_configured:eu.users)",
        ),
        (
            "status_not_configured:a", 2,
            "2 statuses of a, which this run does not sync, were skipped (status_not_configured:a)",
        ),
        (
            "malformed:STATE", 2,
            "2 messages STATE that are malformed were skipped (malformed:STATE)",
        ),
        (
            "state_unmatched", 2,
            "2 states given back, unlike any that it was sent, were skipped (state_unmatched)",
        ),
        (
            "stream_not_configured:that is equals {x}", 2,
            "2 messages of that is equals {x}, which this run does not sync, were skipped "
            "(stream_not_configured:that is equals {x})",
        ),
        ("mixed_state:GLOBAL", 4, "mixed_state:GLOBAL: 4"),  # no words for it
    ],
)  # fmt: skip
def test_a_note_has_words_number_and_key(what: str, count: int, note: str) -> None:
    assert skipped_note(what, count) == note


def test_a_long_name_is_cut() -> None:
    assert len(skipped_note("unknown_type:" + "x" * 5000, 1)) < 1000

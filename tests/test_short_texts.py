"""Names and texts of others are cut where they are shown (issue 36, 16), and nowhere else."""

from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.short_texts import (
    MOST_FOREIGN,
    MOST_NAMED,
    MOST_SHOWN,
    MOST_TEXT,
    bounded,
    named,
    shown,
)

HUGE = "n" * 10_000_000


def test_a_name_is_its_beginning_and_its_length() -> None:
    assert shown("users.id") == "users.id" and named("users") == "users"
    assert shown(HUGE) == "n" * MOST_SHOWN + "… (10,000,000 characters)"
    assert named(HUGE) == "n" * MOST_NAMED + "… (10,000,000 characters)"


def test_a_text_keeps_both_ends() -> None:
    text = f"stream {HUGE}: ask again (3)"
    found = bounded(text)
    assert found.startswith("stream nnn") and found.endswith("nnn: ask again (3)")
    assert len(found) < MOST_TEXT + 100 and bounded(text[:MOST_TEXT]) == text[:MOST_TEXT]


def test_an_error_is_whole_between_processes_and_cut_where_it_is_shown() -> None:
    trace = "t" * 100_000
    error = SourceError(
        f"{HUGE} failed", stream=HUGE, hint=HUGE, connector={"stack_trace": trace, HUGE: HUGE}
    )
    carried = PenstockError.from_dict(error.as_dict())
    assert carried.stream == HUGE and carried.message == error.message
    told = error.as_report()
    assert told["message"].endswith("n failed") and len(told["message"]) < MOST_TEXT + 100
    assert len(told["stream"]) < MOST_TEXT + 100 and len(told["hint"]) < MOST_TEXT + 100
    assert told["connector"].pop("stack_trace") == trace
    (item,) = told["connector"].items()
    assert max(map(len, item)) < MOST_FOREIGN + 100
    problems = ConfigError("no", problems=[HUGE, "x"]).as_report()["problems"]
    assert len(problems[0]) < MOST_TEXT + 100 and problems[1] == "x"

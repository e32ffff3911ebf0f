"""Size and duration literals, and YAML's plain scalars."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.scalars import parse_duration, parse_size, plain


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512mb", 512 << 20), ("512 MB", 512 << 20), ("1kb", 1024), ("1KiB", 1024), 
        ("2gb", 2 << 30), ("1.5gb", 3 << 29), (" 7 ", 7), ("7b", 7), (7, 7), (0, 0), (7.0, 7),
        ("1tb", 1 << 40),
        ("5zb", None), ("mb", None), ("-1mb", None), ("1 2mb", None), (True, None), (None, None),
        (1.5, None), ("0.3b", None), ("", None),
    ],
)  # fmt: skip
def test_sizes(text: str | int | float | None, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0), ("5m", 300.0), ("1h30m", 5400.0), ("1h 30m", 5400.0), ("250ms", 0.25),
        ("2D", 172800.0), (7, 7.0), (0.5, 0.5), ("1.5h", 5400.0), ("1x", None), ("s", None),
        (-1, None), (False, None), ("", None), ("30", None),
    ],
)  # fmt: skip
def test_durations(text: str | int | float, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_of_64_bits_are_integers(number: int) -> None:
    assert plain(str(number)) == number


@given(st.text())
def test_plain_is_a_json_scalar_and_text_is_never_changed(text: str) -> None:
    value = plain(text)
    assert value == text if isinstance(value, str) else isinstance(value, int | float | None)


def test_a_number_of_absurd_length_stays_text() -> None:
    assert plain("9" * 100_000) == "9" * 100_000
    assert plain("1e999") == "1e999"

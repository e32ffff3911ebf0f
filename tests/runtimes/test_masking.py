"""Secrets out of text (L10)."""

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest

from penstock.runtimes.masking import MASK, Masker
from penstock.runtimes.stderr import LINE_BOUND, LineSplitter


def test_every_occurrence_is_masked() -> None:
    assert Masker(["hunter2"]).mask("a hunter2 b hunter2") == "a **** b ****"


def test_longest_first_where_secrets_begin_alike() -> None:
    """The CDK's known fault: of "abc" and "abck" the shorter one left the "k" in the open."""
    assert Masker(["abc", "abck"]).mask("<abck> <abc>") == "<****> <****>"


def test_overlapping_secrets_leave_nothing() -> None:
    assert Masker(["abcd", "cdef"]).mask("-abcdef-") == "-****-"
    assert Masker(["aXb", "long aXb secret"]).mask("long aXb secret") == "****"


@pytest.mark.parametrize("secret", ['q"uo\\te', "sl/ash + ü&=", "tab\tin", "line\nbreak", "it's"])
def test_escaped_and_encoded_forms(secret: str) -> None:
    forms = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(secret))[3:-3],
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        repr(secret)[1:-1],
    ]
    masker = Masker([secret])
    for form in forms:
        assert masker.mask(f"<{form}>") == "<****>", form


@pytest.mark.parametrize("user", ["", "u", "me", "you", "jürgen"])
@pytest.mark.parametrize("tail", [b"", b"x", b":/"])
def test_a_secret_in_base64_L10(user: str, tail: bytes) -> None:
    """``Authorization: Basic`` in a connector's debug output."""
    secret = "s3cret-\xff-pässword>"
    encoded = f"{user}:{secret}".encode() + tail
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        line = Masker([secret]).mask(f"Basic {encode(encoded).decode()}")
        assert MASK in line
        before, behind = line.removeprefix("Basic ").split(MASK)
        assert len(before) <= 4 * len(f"{user}:".encode()) / 3 + 1
        assert len(behind.rstrip("=")) <= 4 * len(tail) / 3 + 2
    assert Masker(["abcde"]).mask("YWJjZGU=") == "YWJjZGU="


def test_lines_of_a_key_are_secret_one_by_one() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    masked = Masker([key]).mask("read hkiG9w0BAQEFAASC from file")
    assert masked == "read **** from file"


def test_short_values_are_left_alone() -> None:
    masker = Masker(["", "1", "no"])
    assert not masker
    assert masker.mask("1 is no secret") == "1 is no secret"


def test_regular_expression_characters_mean_themselves() -> None:
    assert Masker(["a.*c", "($x)"]).mask("abbc a.*c ($x)") == "abbc **** ****"


def test_json_data_is_masked_deep_keys_included() -> None:
    data = {"a": ["s3cret", {"s3cret": 1}], "n": 5, "t": None}
    assert Masker(["s3cret"]).mask_data(data) == {"a": ["****", {"****": 1}], "n": 5, "t": None}


def test_many_lines_are_cheap() -> None:
    masker = Masker([f"secret-number-{i}" for i in range(50)])
    line = "2026-11-20 10:00:00 INFO source: read 1000 records from users in 3.2 s"
    began = time.process_time()
    for _ in range(10_000):
        masker.mask(line)
    assert time.process_time() - began < 3


def split(pieces: list[bytes], *secrets: str) -> list[str]:
    splitter = LineSplitter(Masker(secrets))
    out = [line for piece in pieces for line in splitter.feed(piece)]
    return out + splitter.feed(b"", final=True)


def test_secret_across_reads_is_masked() -> None:
    text = b"login hunter2 ok\nend hunter2"
    for cut in range(len(text)):
        assert split([text[:cut], text[cut:]], "hunter2") == ["login **** ok", "end ****"]


@pytest.mark.parametrize("offset", range(-12, 13))
@pytest.mark.parametrize("bound", [LINE_BOUND, 2 * LINE_BOUND])
def test_secret_where_a_long_line_is_cut_is_masked(bound: int, offset: int) -> None:
    secrets = ("hunter2-hunter2", "hunter2", "ter2-hun")
    text = b"." * (bound + offset) + b"hunter2-hunter2" + b"." * 40_000
    whole = split([text[i : i + 1000] for i in range(0, len(text), 1000)], *secrets)
    assert all(len(line) <= LINE_BOUND * 2 for line in whole)
    joined = "".join(whole)
    assert "****" in joined
    assert set(joined) == {".", "*"}
    assert joined.count(".") == bound + offset + 40_000


def test_bytes_that_are_no_text_and_cut_characters() -> None:
    assert split([b"\xff\xfe\n", "ü".encode()[:1], "ü".encode()[1:] + b"\r\n"]) == ["��", "ü"]

"""Secrets out of text (L10)."""

import base64
import html
import json
import shlex
import time
from urllib.parse import quote, quote_plus, urlencode
from xml.sax.saxutils import escape as xml_escape

import pytest

from penstock.runtimes.masking import MASK, Masker
from penstock.runtimes.secret_forms import forms_of
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


def in_other_words(secret: str) -> dict[str, str]:
    """How programs print a value, each with what it puts around it: by the rule of its language,
    not by our list."""
    raw = secret.encode()
    quoted = secret.replace("\\", "\\\\")
    return {
        "bytes": repr(raw),
        "bytes in a dict": repr({"password": raw, "it's": b"it's"}),
        "bytes in JSON": json.dumps({"message": f"sent {raw!r}"}),
        "repr in JSON": json.dumps({"message": f"sent {secret!r}"}),
        "repr in JSON, not ASCII": json.dumps({"message": f"sent {secret!r}"}, ensure_ascii=False),
        "repr of a repr": repr(repr(secret)),
        "single quotes": "'" + quoted.replace("'", "\\'") + "'",
        "double quotes": '"' + quoted.replace('"', '\\"') + '"',
        "a shell": shlex.join(["login", secret]),
        "PHP's JSON": json.dumps(secret).replace("/", "\\/"),
        "Go's JSON": json.dumps(secret, ensure_ascii=False)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026"),
        "HTML": html.escape(secret),
        "XML": xml_escape(secret),
        "a URL": f"https://u:{quote(secret, safe='')}@host/",
        "a URL in a URL": quote(f"https://u:{quote(secret, safe='')}@host/", safe=""),
        "a form": urlencode({"password": secret}),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "base64": base64.b64encode(raw).decode(),
        "characters": str(list(secret)),
        "characters in JSON": json.dumps(list(secret)),
        "characters in compact JSON": json.dumps(list(secret), separators=(",", ":")),
        "bytes one by one": str(list(raw)),
        "bytes in compact JSON": json.dumps(list(raw), separators=(",", ":")),
        "a tuple": str(tuple(secret)),
    }


@pytest.mark.parametrize(
    "secret",
    [
        "correct-horse",
        "it's a secret",
        'quo"ted secret',
        "both ' and \" quotes",
        "back\\slash\\n",
        "pässwörd-ß",
        "a/b&c=<d>+%e f",
        "tab\tand \x07 bell",
        "日本語のパスワード",
        "emoji 👩 secret",
    ],
)
def test_a_secret_is_masked_however_a_program_prints_it_L10(secret: str) -> None:
    """Issue 36, 9: a bytes literal, and its kind. What is left may hold no piece of the secret that
    is longer than what a quote or an encoding adds by itself."""
    masker = Masker([secret])
    for how, printed in in_other_words(secret).items():
        masked = masker.mask(printed)
        assert MASK in masked, how
        left = masked.replace(MASK, "")
        allowed = {"base64": 3}.get(how, 0)  # the group that its end shares with what follows
        around = in_other_words("X" * 12)[how] if how != "a shell" else "login ''"
        assert len(left) <= len(around.replace("X" * 12, "")) + allowed + 40, (how, masked)
        for piece in (secret[i : i + 4] for i in range(len(secret) - 3)):
            assert piece not in left or piece in around, (how, masked)


def test_a_secret_that_two_writes_split_is_masked_in_every_form_L10() -> None:
    secret = "it's a sécret"
    for how, printed in in_other_words(secret).items():
        line = f"<{printed}>".encode()
        for cut in range(0, len(line), 3):
            (shown,) = split([line[:cut], line[cut:]], secret)
            assert shown == Masker([secret]).mask(line.decode()), (how, cut)


def test_what_is_no_secret_stays_L10() -> None:
    """Forms of a short secret are no numbers and no words of others."""
    masker = Masker(["abc", "12a"])
    for said in ("616263", "YWJj", "[97, 98, 99]", "it's 313261", "a, b, c"):
        assert masker.mask(said) == said


def test_forms_of_a_long_secret_fit_in_a_line_that_is_held_back_L10() -> None:
    key = "k3y" * 800
    assert all(len(form) <= LINE_BOUND for form in forms_of(key))
    text = b"." * (LINE_BOUND - 100) + repr(key.encode()).encode() + b"." * LINE_BOUND
    shown = "".join(split([text[i : i + 999] for i in range(0, len(text), 999)], key))
    assert "k3yk3y" not in shown


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

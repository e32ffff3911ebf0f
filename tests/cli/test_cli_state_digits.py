"""Every way in which a state goes out and in keeps all digits of its numbers (L1)."""

import json
from decimal import Decimal
from typing import Any

import pytest
from cli_harness import RUN, Cli

from penstock.config.home import Home
from penstock.protocols import load
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store

pytestmark = pytest.mark.dear

NUMBERS = (
    '{"a": 0.10000000000000000555, "b": 1E+400, "c": -0.0, "d": 123456789012345678901234567890,'
    ' "e": -18446744073709551617, "f": 1E-400, "g": 1.0, "h": 1.50}'
)
FORMS = {
    "airbyte": f'[{{"type": "STREAM", "stream": {{"stream_descriptor": {{"name": "users"}},'
    f' "stream_state": {NUMBERS}}}}}]',
    "singer": f'{{"bookmarks": {{"users": {NUMBERS}}}, "beside": {NUMBERS}}}',
    "rapidbyte": f'[{{"stream": "users", "cursor_field": "id", "cursor_value":'
    f' {{"type": "utf8", "value": "7"}}, "more": {NUMBERS}}}]',
    "spark": f'[{{"stream": "users", "cursor": {NUMBERS}}}]',
}
EVERY = pytest.mark.parametrize("protocol", FORMS)


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def save(cli: Cli, protocol: str) -> None:
    """Saves the form as a source sends it."""
    store = open_store(Home(cli.home).state_url())
    lease = store.acquire("digits", this_holder(RUN), 60)
    store.remember_source(lease, protocol, f"{protocol}:./source")
    from penstock.engine.inspect.states import read_state

    given = read_state(FORMS[protocol], "state")
    store.replace_states(lease, load(protocol).state.parse(given))
    store.release(lease)
    store.close()


ALL = [word.strip(",}") for word in NUMBERS.split() if '"' not in word]


def digits(text: str) -> list[str]:
    """The numbers of NUMBERS that a text has, as they are written there."""
    return [number for number in ALL if number in text]


@EVERY
def test_a_state_goes_out_with_all_digits(shop: Cli, protocol: str) -> None:
    save(shop, protocol)
    exported = shop("state", "export", "digits").out
    assert exact(exported) == exact(FORMS[protocol])
    for words in (("export",), ("show", "--json"), ("history", "--json")):
        out = shop("state", words[0], "digits", *words[1:]).out
        assert digits(out) == ALL, (words, out)
    assert ALL[0] in shop("state", "show", "digits").out  # texts are cut
    assert shop("state", "history", "digits").code == 0


@EVERY
@pytest.mark.parametrize("verb", ["import", "set"])
def test_a_state_goes_in_with_all_digits(shop: Cli, protocol: str, verb: str) -> None:
    save(shop, protocol)
    exported = shop("state", "export", "digits").out
    (shop.cwd / "state.json").write_text(exported)
    given = "@state.json" if verb == "set" else "state.json"
    for _ in range(2):
        told = shop("state", verb, "digits", given, "--json")
        assert told.code == 0, told.out
        assert shop("state", "export", "digits").out == exported


def test_a_rewind_keeps_the_digits_of_what_it_leaves(shop: Cli) -> None:
    save(shop, "singer")
    big = "0.05000000000000000111"
    done = shop(
        "state", "rewind", "digits", "--stream", "users", "--to", big, "--field", "a", "--json"
    )
    assert done.code == 0, done.out
    exported = shop("state", "export", "digits").out
    assert big in exported and digits(exported) == ALL  # that beside the bookmarks is as it was


def test_show_of_a_pipeline_that_never_ran_says_so(cli: Cli) -> None:
    (cli.cwd / "never.yaml").write_text(
        "pipeline: never\nsource: {use: 'singer:tap-x'}\ndestination: {use: 'parquet:./lake'}\n"
    )
    for words in (("never.yaml",), ("never",), ("singer:tap-x", "parquet:./lake")):
        told = cli("state", "show", *words, "--json")
        assert (told.code, told.error["code"]) == (2, "config.unknown_pipeline")
        assert "has never run" in told.error["message"]
        assert cli("state", "export", *words, "--json").code == 2

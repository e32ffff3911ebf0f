"""Names: cleaned, distinct without case, stable, and never dependent on the order of arrival.

Tables take what a source sends under any name (L8: nothing is lost because two fields clash);
mappings only grow (docs/guarantees.md).
"""

import itertools
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.catalog import StreamId
from penstock.model.names import MAX_BYTES, clean_columns, clean_tables, split_table
from penstock.model.types import CHANGES, EXTRACTED_AT, NEUTRAL_METADATA, RAW_ID, SEQ

SUFFIX = re.compile(r"_[0-9a-f]{8}$")


def tables(*streams: StreamId, taken: dict[str, str] | None = None) -> list[tuple[str | None, str]]:
    answer = clean_tables(streams, taken or {})
    return [split_table(answer[s.key]) for s in streams]


def test_plain_names_stay_as_they_are() -> None:
    names = ["id", "Name", "größe", "名前", "a.b", "x-y", "with`tick", "0"]
    assert clean_columns(names) == {n: n for n in names}


@pytest.mark.parametrize("bad", [*" ,;{}()\n\t=", "\x00", "\x1f", "\x7f", "\u2028", "\ud800"])
def test_characters_that_tables_refuse_become_underscores(bad: str) -> None:
    assert clean_columns([f"a{bad}b"]) == {f"a{bad}b": "a_b"}


def test_an_empty_column_name_becomes_an_underscore() -> None:
    assert clean_columns([""]) == {"": "_"}


@pytest.mark.parametrize(
    "name", [SEQ, RAW_ID, EXTRACTED_AT, CHANGES, NEUTRAL_METADATA.meta, SEQ.upper()]
)
def test_internal_names_are_never_given_to_a_field(name: str) -> None:
    cleaned = clean_columns([name])[name]
    assert cleaned != name and cleaned.startswith(name) and SUFFIX.search(cleaned)


def test_names_that_the_table_reserves_are_suffixed_without_case() -> None:
    cleaned = clean_columns(["_Airbyte_Meta", "x"], reserved=["_airbyte_meta"])
    assert SUFFIX.search(cleaned["_Airbyte_Meta"]) and cleaned["x"] == "x"


def test_case_clash_keeps_one_plain_and_suffixes_the_other_in_any_order() -> None:
    answers = {
        tuple(sorted(clean_columns(order).items()))
        for order in itertools.permutations(["users", "Users", "USERS", "u sers", "u_sers"])
    }
    assert len(answers) == 1
    cleaned = dict(answers.pop())
    assert cleaned["USERS"] == "USERS" and cleaned["u_sers"] == "u_sers"
    assert all(SUFFIX.search(cleaned[n]) for n in ("Users", "users", "u sers"))
    assert len({n.lower() for n in cleaned.values()}) == 5


def test_composed_and_decomposed_forms_clash() -> None:
    cleaned = clean_columns(["é", "e\u0301"])
    assert sum(bool(SUFFIX.search(n)) for n in cleaned.values()) == 1


def test_a_taken_name_never_moves_and_newcomers_give_way() -> None:
    first = clean_columns(["users"])
    later = clean_columns(["Users", "users", "USERS"], first)
    assert later["users"] == "users"
    assert SUFFIX.search(later["Users"]) and SUFFIX.search(later["USERS"])
    assert clean_columns(["USERS", "Users", "users"], later) == later


def test_fields_named_like_the_suffixed_forms_keep_their_names_and_end_no_search() -> None:
    names = ["a", "A"]
    for _ in range(20):  # a hostile source: each round names the form that the last one gave
        names.append(clean_columns(names)["a"])
    cleaned = clean_columns(names)
    assert all(cleaned[n] == n for n in names[2:])
    assert len({n.lower() for n in cleaned.values()}) == len(names)


def test_long_names_are_bounded_in_bytes_and_stay_distinct() -> None:
    names = ["名" * 100 + end for end in ("a", "b")]
    cleaned = clean_columns(names)
    assert len(set(cleaned.values())) == 2
    assert all(len(c.encode()) <= MAX_BYTES and SUFFIX.search(c) for c in cleaned.values())


@given(st.lists(st.text(max_size=12), unique=True, max_size=12), st.randoms(use_true_random=False))
def test_columns_are_distinct_allowed_and_independent_of_order(names: list[str], rnd) -> None:
    cleaned = clean_columns(names)
    shuffled = list(names)
    rnd.shuffle(shuffled)
    assert clean_columns(shuffled) == cleaned
    assert list(cleaned) == names
    assert len({c.lower() for c in cleaned.values()}) == len(names)
    assert not any(re.search(r"[ ,;{}()\n\t=]", c) or not c for c in cleaned.values())


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("users", "users"),
        ("../../etc", "etc"),
        ("..", "table"),
        ("", "table"),
        ("/", "table"),
        (".hidden", "hidden"),
        ("_delta_log", "delta_log"),
        ("a/b\\c", "a_b_c"),
        ("a:b%c=d", "a_b_c_d"),
        ("a\nb\x00c", "a_b_c"),
        ("a[1]*?{b}", "a_1____b_"),
        ("my-table.v2", "my_table_v2"),
        ("größe", "größe"),
        ("हिन्दी", "हिन्दी"),
    ],
)
def test_tables_are_folders_that_spark_shows_and_identifiers(name: str, folder: str) -> None:
    assert tables(StreamId(None, name)) == [(None, folder)]


def test_users_and_users_in_capitals_get_two_tables_in_any_order() -> None:
    a, b = StreamId("shop", "users"), StreamId("shop", "Users")
    assert clean_tables([a, b]) == clean_tables([b, a])
    assert tables(a, b)[1] == ("shop", "Users") and SUFFIX.search(tables(a, b)[0][1])


def test_the_same_name_in_two_namespaces_needs_no_suffix() -> None:
    assert tables(StreamId("a", "t"), StreamId("b", "t")) == [("a", "t"), ("b", "t")]


def test_namespaces_that_clash_are_kept_apart_and_one_namespace_stays_together() -> None:
    (n1, _), (n2, _), (n3, _) = tables(StreamId("A", "x"), StreamId("a", "y"), StreamId("a", "z"))
    assert n1 == "A" and n2 == n3 and n2 != "a" and SUFFIX.search(n2 or "")


def test_a_namespace_keeps_its_name_over_calls() -> None:
    first = clean_tables([StreamId("a", "x")])
    answer = clean_tables([StreamId("A", "x"), StreamId("a", "y")], first)
    assert split_table(answer[StreamId("a", "y").key]) == ("a", "y")
    assert SUFFIX.search(split_table(answer[StreamId("A", "x").key])[0] or "")


def test_a_root_table_and_a_namespace_never_share_a_folder() -> None:
    (ns, name), (_, root) = tables(StreamId("users", "orders"), StreamId(None, "Users"))
    assert (ns, name) == ("users", "orders") and SUFFIX.search(root)
    taken = clean_tables([StreamId(None, "users")])
    assert SUFFIX.search(tables(StreamId("users", "orders"), taken=taken)[0][0] or "")


def test_an_empty_namespace_is_the_root_yet_its_table_is_its_own() -> None:
    (a, b) = tables(StreamId(None, "t"), StreamId("", "t"))
    assert a[0] is None and b[0] is None and a != b


@given(
    st.lists(
        st.builds(StreamId, st.none() | st.text(max_size=4), st.text(max_size=6)),
        unique=True,
        max_size=10,
    ),
    st.randoms(use_true_random=False),
)
def test_tables_are_distinct_safe_stable_and_independent_of_order(streams, rnd) -> None:
    streams = [s for s in streams if not re.search("[\ud800-\udfff]", f"{s.namespace}{s.name}")]
    cleaned = clean_tables(streams)
    shuffled = list(streams)
    rnd.shuffle(shuffled)
    assert clean_tables(shuffled) == cleaned
    places = [split_table(cleaned[s.key]) for s in streams]
    assert len({(p[0] and p[0].lower(), p[1].lower()) for p in places}) == len(streams)
    for part in (x for p in places for x in p if x is not None):
        assert part and part[0] != "_" and not re.search(r"[/\\.:%=\x00-\x1f]", part)
    half = clean_tables(streams[::2])
    assert clean_tables(streams, half).items() >= half.items()


def test_importing_names_pulls_in_no_heavy_package() -> None:
    """docs/architecture.md: what runs beside a connector stays light."""
    code = "import sys, penstock.model.names; print({'sqlalchemy','pyarrow'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"

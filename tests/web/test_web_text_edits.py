"""A change of one value leaves every other byte of a pipeline file: however the file is written."""

import random
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.web.file_edit import edited, values_of
from penstock.web.yaml_text import same

# ruff: noqa: E501 - a file is easier to read in one line
ODD: dict[str, str] = {
    "quotes": "a: 'x'   # one\nb: \"y\"\nc: z\nd:   \"${V}\"\ne: ${V}\n",
    "numbers as text": "a: '5'\nb: 5\nc: 0x1F\nd: 1_000\ne: 007\nf: 1e3\ng: 2024-01-01\n",
    "words": "a: yes\nb: off\nc: ~\nd:\ne: NULL\nf: True\n",
    "flow": "a: { x: 1 , y:  [ 1,2 ,3 ] , }  # c\nb: [ ]\nc: {}\nd: {x: ${V}, y: '${V}'}\n",
    "flow in lines": "a: {\n  x: 1,  # one\n  y: 2   # two\n}\nb: [\n  1,\n  2,\n]\n",
    "texts in lines": "a: |\n  one\n  two\n\nb: >-\n  folded\n  text\n# end\nc: |+\n  kept\n\n\nd: 1\n",
    "long words": "a: one\n  two\n  three  # c\nb: \"one\n  two\"\n",
    "deep indents": "a:\n      b:\n         c: 1\n         # in c\n         d: 2\n      e: 3\n",
    "lists": "a:\n- 1\n- 2   # two\n# between\n- 3\nb:\n    -   x: 1\n        y: 2\n    -   x: "
    "3\nc:\n  - - 1\n    - 2\n",
    "anchors": "a: &one { x: 1 }\nb: *one\nc: &two text\nd: *two\n",
    "tags": "a: !secret abc\nb: !!str 5\nc: !secret '${V}'\n",
    "no last line break": "a: 1\nb:\n  c: 2",
    "windows": "a: 1\r\nb:\r\n  - x\r\n  - y: 1\r\n    z: 2\r\n# end\r\n",
    "markers": "---\na: 1\n...\n",
    "other letters": "a: é€😀 # ü\nb: \"\\u00e9\"\n'c d': 1\n\"e: f\": 2\n? g\n: 3\n",
    "spaces at ends": "a: 1   \nb:   \n  c: 2  \t\n\n\n",
    "comments all over": "# 1\na: # 2\n  # 3\n  b: 1 # 4\n  # 5\n# 6\nc: 2\n# 7\n",
    "order": "z: 1\na: 2\nm: {q: 1, b: 2}\n",
}  # fmt: skip


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_the_same_values_are_the_same_bytes(text: str) -> None:
    values = values_of(text)
    assert (
        edited(text, {(name,): value for name, value in values.items() if value is not None})
        == text
    )


def _wanted(values: Any, seed: random.Random) -> Any:
    """Other values: one changed, added or removed somewhere."""
    new: Any = seed.choice(["text", "yes", 5, 1.5, True, None, "a: b # c", "${V}", "l1\nl2\n", "",
                            {"k": [1, {"m": "x"}]}, [], {}, [{"n": 1}, {"n": 2}], ["p", "q"]])  # fmt: skip
    if isinstance(values, dict) and values and seed.random() < 0.85:
        made = dict(values)
        name = seed.choice([*made])
        match seed.randrange(4):
            case 0:
                del made[name]
            case 1:
                made[f"new {seed.randrange(3)}"] = new
            case _:
                made[name] = _wanted(made[name], seed)
        return made
    if isinstance(values, list) and values and seed.random() < 0.85:
        listed = list(values)
        at = seed.randrange(len(listed))
        match seed.randrange(4):
            case 0:
                del listed[at]
            case 1:
                listed.insert(at, new)
            case 2:
                listed.append(new)
            case _:
                listed[at] = _wanted(listed[at], seed)
        return listed
    return new


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_any_change_is_read_back_and_touches_few_lines(text: str) -> None:
    """A change of one value is there afterwards, with its type, and every comment of another line
    stays; or it is refused, which only what several places share may be."""
    if not text.startswith("---"):
        lines = (f"  {line}" if line.strip() else line for line in text.splitlines(True))
        text = ("top:\r\n" if "\r\n" in text else "top:\n") + "".join(lines)
    root = next(iter(values_of(text)))
    seed, refused = random.Random(7), 0
    for _ in range(150):
        had = values_of(text)
        wanted = _wanted(had[root], seed)
        if wanted is None:
            continue
        try:
            made = edited(text, {(root,): wanted})
        except ConfigError as e:
            assert e.code == "ui.text", e
            refused += 1
            continue
        found = values_of(made)
        assert same(found[root], wanted), (wanted, made)
        assert ("\r\n" in made) == ("\r\n" in text) and made.count("\r\n") in (0, made.count("\n"))
    assert refused <= (60 if "&" in text else 0), refused


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ("a:\n  b: 1  # one\n  # about c\n  c: 2\n", {("a", "b"): 5},
         "a:\n  b: 5  # one\n  # about c\n  c: 2\n"),
        ("a:\n  b: 1  # one\n  # about c\n  c: 2\n", {("a", "b"): None}, "a:\n  # about c\n  c: 2\n"),
        ("a:\n  b: 1\n  # d: 3\nc: 2\n", {("a",): {"b": 1, "x": "z"}},
         "a:\n  b: 1\n  x: z\n  # d: 3\nc: 2\n"),
        ("a: {}  # c\n", {("a", "b"): 1}, "a:  # c\n  b: 1\n"),
        ("a:  # c\nb: 1\n", {("a", "b"): 1}, "a:  # c\n  b: 1\nb: 1\n"),
        ("a: 1\n", {("b", "c"): ["x", "z"]}, "a: 1\nb:\n  c: [x, z]\n"),
        ("a: 1", {("b",): 2}, "a: 1\nb: 2"),
        ("a: 1\r\n", {("b",): {"c": 2}}, "a: 1\r\nb:\r\n  c: 2\r\n"),
        ("a: [1, 2, 3]\n", {("a",): [2, 3]}, "a: [2, 3]\n"),
        ("a: [1, 2, 3]\n", {("a",): [1]}, "a: [1]\n"),
        ("a: [1, 2, 3]\n", {("a",): [1, 4]}, "a: [1, 4]\n"),
        ("l:\n- x: 1  # one\n  y: 2\n# two\n- x: 3  # three\n", {("l",): [{"x": 3}]},
         "l:\n# two\n- x: 3  # three\n"),
        ("l:\n- x: 1  # one\n  y: 2\n", {("l",): [{"y": 2}]}, "l:\n-   # one\n  y: 2\n"),
        ("l:\n- x: 1\n  y: 2\n", {("l",): [{"y": 2}]}, "l:\n- y: 2\n"),
        ("l:\n  - users  # u\n  - orders\n", {("l",): [{"name": "users", "columns": ["a"]}, "orders"]},
         "l:\n  - name: users\n    columns: [a]  # u\n  - orders\n"),
        ("l:\n- name: a  # one\n  k: 1\n- name: b  # two\n  k: 2\n", {("l",): [{"name": "b", "k": 3}]},
         "l:\n- name: b  # two\n  k: 3\n"),
        ("l:\n- alpha  # one\n- beta  # two\n", {("l",): ["betas", "x"]}, "l:\n- betas  # two\n- x\n"),
        ("l:\n- a\n# about b\n- b  # b\n", {("l",): ["a", "x", "b"]}, "l:\n- a\n- x\n# about b\n- b  # b\n"),
        ("l: [a,  # one\n    b,  # two\n    c]  # three\n", {("l",): ["a", "b"]},
         "l: [a,  # one\n    b,  # two\n    ]  # three\n"),
        ("t: !secret 'abc'  # c\n", {("t",): "${V}"}, "t: !secret \"${V}\"  # c\n"),
        ("a: |\n  x\n  y\nb: 1\n", {("a",): "z"}, "a: z\nb: 1\n"),
        ("a:\n  b:  # c\n    d: 1\n  e: 2\n", {("a",): {"b": 5, "e": 2}}, "a:\n  b: 5  # c\n  e: 2\n"),
    ],
)  # fmt: skip
def test_a_change_is_where_it_belongs(before: str, changes: Any, after: str) -> None:
    assert edited(before, changes) == after


def test_what_two_places_share_is_not_changed_for_both() -> None:
    text = "a: &one { x: 1 }\nb: *one\n"
    assert edited(text, {("b",): {"x": 2}}) == "a: &one { x: 1 }\nb:\n  x: 2\n"
    with pytest.raises(ConfigError) as found:
        edited(text, {("a", "x"): 2})
    assert found.value.code == "ui.text" and found.value.hint is not None


def test_ten_thousand_streams_are_edited_in_seconds() -> None:
    import time

    lines = "".join(f"    - {{ name: s{n}, mode: append }}  # {n}\n" for n in range(10_000))
    text = f"source:\n  streams:\n{lines}"
    streams = values_of(text)["source"]["streams"]
    streams[5_000]["mode"] = "mirror"
    began = time.process_time()
    made = edited(text, {("source", "streams"): streams})
    assert made == text.replace("s5000, mode: append", "s5000, mode: mirror")
    assert time.process_time() - began < 10

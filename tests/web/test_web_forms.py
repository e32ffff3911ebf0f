"""Forms from a connector's JSON Schema: what is shown, what comes back, what is kept."""

import time
from typing import Any

import pytest
from page_forms import sent

from penstock.connectors.catalog.index import indexed
from penstock.connectors.catalog.settings import listed_schema, settings_schema
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import secret_values, validate_config
from penstock.protocols.singer.command_line import config_schema
from penstock.web.connector_specs import form_schema
from penstock.web.forms.fields import FormBuilder, FormField, fallbacks
from penstock.web.forms.posted import PostedForm
from penstock.web.forms.rich_text import rich_text
from penstock.web.yaml_text import same

SECRET = "airbyte_secret"
REL = ' rel="noopener noreferrer nofollow" target="_blank">d</a>'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["host", "login", "mode"],
    "properties": {
        "host": {"type": "string", "title": "Host", "order": 1},
        "port": {"type": "integer", "default": 5432, "order": 2},
        "mode": {"type": "string", "enum": ["a", "b"], "order": 0},
        "ratio": {"type": "number"},
        "on": {"type": "boolean", "default": False},
        "maybe": {"type": "boolean"},
        "start": {"type": "string", "format": "date-time", "always_show": True},
        "day": {"type": ["null", "string"], "format": "date"},
        "words": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "kinds": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
        "parts": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "key": {"type": "string", SECRET: True}}}},
        "ssl": {"type": "object", "properties": {
            "on": {"type": "boolean"}, "pem": {"type": "string", "multiline": True}}},
        "login": {"type": "object", "oneOf": [
            {"title": "Key", "required": ["kind", "key"], "properties": {
                "kind": {"type": "string", "const": "key"},
                "key": {"type": "string", SECRET: True}}},
            {"title": "Name", "required": ["kind", "user"], "properties": {
                "kind": {"type": "string", "const": "name"}, "user": {"type": "string"},
                "password": {"type": "string", SECRET: True}}}]},
        "free": {"type": "object"},
        "gone": {"type": "string", "airbyte_hidden": True},
    },
}  # fmt: skip


def built(config: dict[str, Any], **more: Any) -> dict[str, FormField]:
    builder = FormBuilder(
        SCHEMA, SECRET, "source", more.pop("known", set()), more.pop("faults", {})
    )
    return {f.name.partition(":")[2]: f for f in builder.fields(config)}


def back(config: dict[str, Any], schema: Any = SCHEMA, word: str | None = SECRET) -> Any:
    fields = FormBuilder(schema, word, "source", set()).fields(config)
    return PostedForm(schema, word, "source", sent(fields)).read(config)


FULL: dict[str, Any] = {
    "host": "db", "port": 5432, "mode": "b", "ratio": 0.5, "on": True, "maybe": False,
    "start": "2024-01-01T00:00:00Z", "day": "2024-01-01", "words": ["a b", "c"], "numbers": [1, 2],
    "kinds": ["y"], "parts": [{"name": "p", "key": "${K}"}, {"name": "q"}],
    "ssl": {"on": True, "pem": "a\nb"}, "login": {"kind": "name", "user": "u", "password": "${P}"},
    "free": {"a": [1]}, "gone": "kept", "unknown": {"kept": True},
}  # fmt: skip


@pytest.mark.parametrize("config", [FULL, {"host": "h", "mode": "a", "login": {"kind": "key"}}, {
    "host": "h", "mode": "a", "login": {"kind": "key", "key": "${K}"}, "port": "${PORT}",
    "on": "${ON}", "ratio": 2}])  # fmt: skip
def test_a_form_that_nobody_touched_changes_nothing(config: dict[str, Any]) -> None:
    assert back(config) == config


ODD: list[tuple[Any, Any]] = [
    # (schema of x, value of x): nobody touches it, so it stays, type and all
    ({"type": "integer"}, "5432"), ({"type": "integer"}, 5.0), ({"type": "number"}, 5),
    ({"type": "number"}, "${RATIO}"), ({"type": "string"}, 5), ({"type": "string"}, True),
    ({"type": "string"}, "one\ntwo"), ({"type": "string"}, " spaces "), ({"type": "string"}, ""),
    ({"type": "string"}, None), ({"type": "string"}, ["a"]), ({"type": "string"}, "a\r\nb"),
    ({"type": "boolean"}, "true"), ({"type": "boolean"}, 0), ({"type": "boolean"}, None),
    ({"type": "boolean", "default": True}, False), ({"type": "boolean", "default": True}, True),
    ({"enum": ["a", "b"]}, "c"), ({"enum": [1, 2]}, "1"), ({"enum": [1, 2]}, True),
    ({"type": "array", "items": {"type": "string"}}, ["", " a ", "b"]),
    ({"type": "array", "items": {"type": "string"}}, "a,b"),
    ({"type": "array", "items": {"type": "integer"}}, ["1", 2, 3.0]),
    ({"type": "array", "items": {"type": "string"}}, []),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, ["z", "a"]),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, "${LIST}"),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, [None, "x", {}]),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, "text"),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, None),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
    ({"type": "object", "required": ["k"], "properties": {"k": {"const": "v"}}}, {"b": 1}),
    ({"type": "object", "required": ["k"], "properties": {"k": {"const": "v"}}}, {"k": "w"}),
    (SCHEMA["properties"]["login"], {"key": "${K}"}),
    (SCHEMA["properties"]["login"], {"kind": "x"}),
    (SCHEMA["properties"]["login"], "key"), ({"type": "object"}, {"b": {"z": 1, "a": 2}, "a": []}),
    ({"type": "object", "additionalProperties": {"type": "string"}}, {"z": 1, "a b/c~": "x"}),
    ({"type": "object", "additionalProperties": {"type": "string"}}, []),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 512),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "512mb"),
    ({"type": "string", "default": "d"}, "d"), ({"type": "string", "default": "d"}, None),
    ({"type": "array", "default": ["a"], "items": {"enum": ["a", "b"]}}, []),
]  # fmt: skip


@pytest.mark.parametrize("required", [[], ["x"]])
@pytest.mark.parametrize(("node", "value"), ODD)
def test_an_odd_value_that_nobody_touched_stays_as_it_is(
    node: Any, value: Any, required: list[str]
) -> None:
    schema = {"properties": {"z": {"type": "string"}, "x": node}, "required": required}
    config = {"x": value, "other": 1, "z": "z"}
    made = back(config, schema)
    assert same(made, config) and [*made] == [*config]
    # another field is touched: this one stays
    given = sent(FormBuilder(schema, SECRET, "source", set()).fields(config))
    made = PostedForm(schema, SECRET, "source", given | {"source:z": ["new"]}).read(config)
    assert same(made, {**config, "z": "new"}) and [*made] == [*config]


@pytest.mark.parametrize("required", [[], ["x"]])
@pytest.mark.parametrize("node", [node for node, _ in ODD])
def test_what_is_absent_stays_absent(node: Any, required: list[str]) -> None:
    """No default and no constant is written that nobody has chosen."""
    schema = {"properties": {"x": node}, "required": required}
    assert back({}, schema) == {}


def test_a_default_is_written_once_it_is_chosen() -> None:
    fields = built({})
    assert fields["port"].value == "" and fields["port"].default == "5432"
    given = sent([*fields.values()]) | {"source:port": ["5432"], "source:on": ["false"]}
    made = PostedForm(SCHEMA, SECRET, "source", given).read({})
    assert made == {"port": 5432, "on": False}


def test_one_line_of_a_list_changes_and_the_others_keep_their_types() -> None:
    config = {"numbers": ["1", 2, "${N}"]}
    given = sent([*built(config, known={"N"}).values()])
    given["source:numbers"] = ["1\r\n2\r\n${N}\r\n4"]
    form = PostedForm(SCHEMA, SECRET, "source", given, known={"N"})
    assert same(form.read(config)["numbers"], ["1", 2, "${N}", 4])


def test_a_constant_comes_with_the_first_value_beside_it() -> None:
    schema = {"properties": {"o": {"type": "object", "required": ["k", "a"], "properties": {
        "k": {"const": "v"}, "a": {"type": "string"}}}}}  # fmt: skip
    given = {"source:o/a": ["x"]}
    assert PostedForm(schema, SECRET, "source", given).read({}) == {"o": {"a": "x", "k": "v"}}


@pytest.mark.parametrize("text", ["1_000", "nan", "inf", "1e999", "٣", "0x10", "9" * 30, "1.2.3"])
def test_a_number_that_the_file_cannot_hold_is_a_fault(text: str) -> None:
    form = PostedForm(SCHEMA, SECRET, "source", {"source:ratio": [text]})
    form.read({})
    assert set(form.faults) == {("ratio",)}


def test_what_was_typed_into_an_item_goes_with_it() -> None:
    config = {"parts": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
    given = sent([*built(config).values()])
    given |= {"source:parts/0/key": ["of-a"], "source:parts/2/key": ["of-c"]}
    form = PostedForm(SCHEMA, SECRET, "source", given, "drop:source:parts:0")
    made = form.read(config)
    assert [p["name"] for p in made["parts"]] == ["b", "c"]
    assert form.secrets == {("parts", "1", "key"): "of-c"}
    builder = FormBuilder(SCHEMA, SECRET, "source", set(), turns=form.turns)
    ids = {f.id for p in builder.fields(made) if p.key == "parts" for f in p.children[0].children}
    before = {f.id for f in built(config)["parts"].children[0].children}
    assert ids.isdisjoint(before)  # a browser keeps what is typed by its id


def test_names_are_added_and_removed() -> None:
    schema = {"properties": {"h": {"type": "object", "additionalProperties": {"type": "string"}}}}
    config = {"h": {"a": "1", "b": "2"}}
    given = sent(FormBuilder(schema, SECRET, "source", set()).fields(config))
    add = PostedForm(schema, SECRET, "source", given | {"source:h#new": ["c/d"]}).read(config)
    assert add == {"h": {"a": "1", "b": "2", "c/d": ""}}
    drop = PostedForm(schema, SECRET, "source", given, "drop:source:h:a").read(config)
    assert drop == {"h": {"b": "2"}}


def test_a_mapping_that_nobody_describes_takes_names_and_json() -> None:
    given = {
        "source:free#here": ["1"],
        "source:free#keys": ["a", "api_key"],
        "source:free/a": ["5"],
    }
    given |= {"source:free#new": ['{"b": {"c": [1]}}'], "source:free/api_key": ["typed"]}
    form = PostedForm(SCHEMA, SECRET, "source", given)
    made = form.read({"free": {"a": 1, "api_key": "x"}})
    assert made == {"free": {"a": 5, "api_key": "x", "b": {"c": [1]}}}
    assert form.secrets == {("free", "api_key"): "typed"}


def _circles() -> dict[str, Any]:
    tree: dict[str, Any] = {"type": "object", "properties": {
        f"c{n}": {"$ref": "#/definitions/tree"} for n in range(10)}}  # fmt: skip
    wide: dict[str, Any] = {}
    for n in range(9):
        inner = {f"p{i}": {"$ref": f"#/definitions/w{n + 1}"} for i in range(12)}
        wide[f"w{n}"] = {"type": "object", "properties": inner}
    wide["w9"] = {"type": "string"}
    forms = {f"f{n}": {"oneOf": [{"$ref": f"#/definitions/f{n + 1}"}] * 9} for n in range(9)}
    forms["f9"] = {"type": "string"}
    lists = {"type": "array", "items": {"$ref": "#/definitions/lists"}}
    self_ = {"$ref": "#/definitions/self"}
    return {"definitions": {"tree": tree, "lists": lists, "self": self_, **wide, **forms},
            "properties": {"all": {"$ref": "#"}, **{name: {"$ref": f"#/definitions/{name}"}
                           for name in ("tree", "lists", "self", "w0", "f0")}}}  # fmt: skip


@pytest.mark.parametrize("name", ["all", "tree", "lists", "self", "w0", "f0"])
def test_a_schema_that_contains_itself_or_fans_out_ends(name: str) -> None:
    schema = _circles()
    schema["properties"] = {name: schema["properties"][name]}
    deep: Any = "x"
    for _ in range(40):
        deep = {"c0": deep}
    began = time.monotonic()
    for config in ({}, {name: deep}, {name: [[[["x"]]]]}):
        fields = FormBuilder(schema, SECRET, "source", set()).fields(config)
        assert len(repr(fields)) < 20_000_000
        assert same(PostedForm(schema, SECRET, "source", sent(fields)).read(config), config)
    assert time.monotonic() - began < 10


def test_a_secret_where_the_schema_names_none_is_not_shown() -> None:
    schema = {"properties": {"free": {"type": "object"}, "url": {"type": "string"},
                             "words": {"type": "array", "items": {"type": "string"}}}}  # fmt: skip
    config = {"free": {"a": "s3cr3t-1"}, "url": "https://u:s3cr3t-1@e.com", "words": ["s3cr3t-1"]}
    fields = FormBuilder(schema, SECRET, "s", set(), hidden={"s3cr3t-1"}).fields(config)
    assert "s3cr3t" not in repr(fields)
    form = PostedForm(schema, SECRET, "s", sent(fields), hidden={"s3cr3t-1"})
    assert same(form.read(config), config)


def test_a_tap_that_marks_no_secret_gets_them_by_name() -> None:
    names = {"api_key": {"type": "string"}, "base_url": {"type": "string"}, "auth_type": {},
             "use_token": {"type": "boolean"}}  # fmt: skip
    schema = form_schema(config_schema({"type": "object", "properties": names}))
    fields = {f.key: f for f in FormBuilder(schema, "secret", "s", set()).fields({})}
    kinds = {name: f.kind for name, f in fields.items()}
    assert kinds == {
        "api_key": "secret", "base_url": "text", "auth_type": "text", "use_token": "choice"
    }  # fmt: skip
    config = {"api_key": "kkkkk", "base_url": "https://e.com/x", "auth_type": "basic"}
    assert secret_values(schema, config, "secret") == ["kkkkk"]


def test_a_connector_that_does_not_describe_itself_has_the_settings_of_the_index() -> None:
    listed = [e for e in indexed() if e.settings]
    assert len(listed) > 500
    fields = other = 0
    for entry in listed:
        schema = settings_schema(entry)
        made = FormBuilder(schema, "secret", "source", set()).fields({})
        config = {f.key: "${V}" for f in made if f.kind in ("text", "secret", "number")}
        assert same(back(config, schema, "secret"), config), entry.name
        secret = {s.name for s in entry.settings if s.secret and "." not in s.name}
        assert {f.key for f in made if f.kind in ("secret", "elsewhere")} >= secret, entry.name
        fields, other = fields + len(made), other + len(fallbacks(made))
    assert listed_schema("singer", "no-such-tap") is None
    assert other / fields < 0.02


def test_order_then_required_then_the_alphabet() -> None:
    names = [*built({})]
    assert names[:3] == ["mode", "host", "port"] and names[3] == "login"
    assert names[4:] == sorted(names[4:]) and "gone" not in names


def test_optional_fields_are_folded_unless_they_differ_or_always_show() -> None:
    fields = built({"port": 5433, "on": False})
    shown = {name for name, f in fields.items() if not f.folded}
    assert shown == {"mode", "host", "login", "port", "start"}


def test_no_secret_is_in_a_field() -> None:
    fields = built({"login": {"kind": "key", "key": "s3cr3t-text"}, "parts": [{"key": "s3cr3t-2"}]})
    assert "s3cr3t" not in repr(fields)
    assert next(f for f in fields["login"].children if f.kind == "secret").given


def test_a_typed_secret_is_apart_and_an_empty_one_keeps() -> None:
    config = {"login": {"kind": "key", "key": "${K}"}}
    given = sent([*built(config).values()])
    form = PostedForm(SCHEMA, SECRET, "source", given)
    assert form.read(config)["login"]["key"] == "${K}" and form.secrets == {}
    form = PostedForm(SCHEMA, SECRET, "source", given | {"source:login/key": ["new"]})
    assert form.read(config)["login"]["key"] == "${K}"
    assert form.secrets == {("login", "key"): "new"}


def test_another_form_drops_what_only_the_other_had() -> None:
    config = {"login": {"kind": "name", "user": "u", "password": "${P}"}}
    given = sent([*built(config).values()]) | {"source:login#form": ["0"]}
    assert PostedForm(SCHEMA, SECRET, "source", given).read(config)["login"] == {"kind": "key"}


def test_items_are_added_and_removed() -> None:
    config = {"parts": [{"name": "a"}, {"name": "b"}]}
    given = sent([*built(config).values()])
    add = PostedForm(SCHEMA, SECRET, "source", given, "add:source:parts").read(config)
    drop = PostedForm(SCHEMA, SECRET, "source", given, "drop:source:parts:0").read(config)
    assert add["parts"] == [{"name": "a"}, {"name": "b"}, {}] and drop["parts"] == [{"name": "b"}]


def test_an_unset_variable_is_shown_as_missing_and_stays_until_a_value_comes() -> None:
    config = {"host": "${SHOP_HOST}"}
    fields = built(config)
    assert fields["host"].unset == "SHOP_HOST" and fields["host"].value == ""
    given = sent([*fields.values()])
    assert PostedForm(SCHEMA, SECRET, "source", given).read(config)["host"] == "${SHOP_HOST}"
    typed = given | {"source:host": ["db"]}
    assert PostedForm(SCHEMA, SECRET, "source", typed).read(config)["host"] == "db"
    assert built(config, known={"SHOP_HOST"})["host"].value == "${SHOP_HOST}"


def test_what_is_no_number_and_no_json_is_a_fault_beside_its_field() -> None:
    given = {"source:ratio": ["fast"], "source:free#here": ["1"], "source:free#keys": ["a"]}
    form = PostedForm(SCHEMA, SECRET, "source", given | {"source:free/a": ["{"]})
    assert form.read({"free": {"a": [1]}})["free"] == {"a": [1]}
    assert set(form.faults) == {("ratio",), ("free", "a")}
    assert built({}, faults={("ratio",): ["bad"]})["ratio"].faults == ["bad"]


@pytest.mark.parametrize(
    ("name", "text", "is_fault"),
    [
        ("day", "2024-13-99", True),
        ("day", "2023-02-29", True),
        ("day", "2024-02-29", False),
        ("day", "30 days ago", False),
        ("day", "${DAY}", False),
        ("start", "2024-04-31T00:00:00Z", True),
        ("start", "2024-04-30T00:00:00Z", False),
    ],
)
def test_a_day_that_no_calendar_has_is_a_fault(name: str, text: str, is_fault: bool) -> None:
    form = PostedForm(SCHEMA, SECRET, "source", {f"source:{name}": [text]})
    assert form.read({})[name] == text
    assert set(form.faults) == ({(name,)} if is_fault else set())


def test_what_the_browser_does_not_send_is_kept() -> None:
    assert PostedForm(SCHEMA, SECRET, "source", {}).read(FULL) == FULL


def test_where_everything_is_credentials_every_text_without_a_choice_is_a_secret() -> None:
    mode = {"type": "string", "default": "x"}
    numbers = {"type": "integer"}
    schema = {"properties": {"token": {"type": "string"}, "mode": mode, "n": numbers}}
    fields = {f.label: f for f in FormBuilder(schema, None, "s", set()).fields({"token": "abc"})}
    assert [fields[n].kind for n in ("token", "mode", "n")] == ["secret", "text", "number"]
    assert "abc" not in repr(fields)


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ({"type": "object", "additionalProperties": True}, "named"),
        ({"type": "object", "additionalProperties": False}, "json"),
        ({"type": "array"}, "json"),
        ({"type": ["string", "object"], "properties": {}}, "text"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "text"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "text"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "text"),
        ({"$ref": "#/definitions/d"}, "choice"),
        ({"allOf": [{"$ref": "#/definitions/d"}], "title": "t"}, "choice"),
        ({"type": "object", "airbyte_secret": True}, "elsewhere"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/x"}}}, "object"),
        ({}, "text"),
        ({"type": "string", "enum": []}, "text"),
    ],
)  # fmt: skip
def test_whatever_a_schema_has_there_is_a_field_for_it(node: Any, kind: str) -> None:
    schema = {
        "definitions": {"d": {"type": "string", "enum": ["a", "b"]}},
        "properties": {"x": node},
    }
    (field,) = FormBuilder(schema, SECRET, "s", set()).fields({})
    assert field.kind == kind
    for value in ({}, {"x": {"a": 1}}, {"x": [1]}, {"x": "a"}, {"x": 1}, {"x": None}, {"x": True}):
        FormBuilder(schema, SECRET, "s", set()).fields(value)
        PostedForm(schema, SECRET, "s", {"s:x": ["a"], "s:x#here": ["1"]}).read(value)


def test_a_fallback_is_counted() -> None:
    assert fallbacks([*built({}).values()]) == []
    deep = fallbacks([*built({"free": {"a": {"b": 1}}}).values()])
    assert [(f.name, f.why) for f in deep] == [
        ("source:free/a", "the value is of another kind than the schema's")
    ]


def test_what_comes_back_is_valid_by_the_same_check() -> None:
    spec = ConnectorSpec(protocol="airbyte", config_schema=SCHEMA)
    validate_config(spec, {k: v for k, v in back(FULL).items() if k != "unknown"}, SECRET)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a <b>b</b>", "a <b>b</b>"),
        ("<script>x</script>", "x"),
        ('<a href="https://e.com/?a=1&b=2" onclick="x">d</a>',
         '<a href="https://e.com/?a=1&amp;b=2"' + REL),
        ('<a href="javascript:x">d</a>', "d"),
        ('<a href=" java\nscript:x">d</a>', "d"),
        ('<a href="data:text/html,x">d</a>', "d"),
        ("<img src=x onerror=y>", ""),
        ("1 < 2 & 3", "1 &lt; 2 &amp; 3"),
        ("`a > b`", "<code>a &gt; b</code>"),
        ("<b>open", "<b>open</b>"),
        ("</b></div>x", "x"),
        ('<a href="https://e.com/%22onx=%22">d</a>',
         '<a href="https://e.com/%22onx=%22"' + REL),
        ("[d](https://e.com)",
         '<a href="https://e.com"' + REL),
        ("[d](javascript:x)", "[d](javascript:x)"),
        (None, ""),
    ],
)  # fmt: skip
def test_descriptions_are_safe(text: Any, shown: str) -> None:
    assert str(rich_text(text)) == shown

"""Forms from a connector's JSON Schema: what is shown, what comes back, what is kept."""

from typing import Any

import pytest

from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import validate_config
from penstock.web.forms.fields import FormBuilder, FormField, fallbacks
from penstock.web.forms.posted import PostedForm
from penstock.web.forms.rich_text import rich_text

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


def sent(fields: list[FormField]) -> dict[str, list[str]]:
    """What a browser sends of a form as it is: by the rules of HTML forms, not by ours."""
    made: dict[str, list[str]] = {}
    for f in fields:
        match f.kind:
            case "boolean":
                made[f"{f.name}#here"] = ["1"]
                made |= {f.name: ["1"]} if f.checked else {}
            case "choices":
                made[f"{f.name}#here"] = ["1"]
                chosen = [o.value for o in f.options if o.chosen]
                made |= {f.name: chosen} if chosen else {}
            case "choice":
                made[f.name] = [next((o.value for o in f.options if o.chosen), "")]
            case "lines":
                made[f"{f.name}#here"] = ["1"]
                made[f.name] = [f.value.replace("\n", "\r\n")]
            case "variant":
                made[f"{f.name}#form"] = [next((o.value for o in f.options if o.chosen), "")]
            case "items":
                made[f"{f.name}#count"] = [str(len(f.children))]
            case "secret":
                made[f.name] = [""]
            case "object" | "fixed" | "elsewhere" | "hidden":
                pass
            case _:
                made[f.name] = [f.value.replace("\n", "\r\n")]
        made |= sent(f.children)
    return made


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
    given = {"source:ratio": ["fast"], "source:free": ["{"]}
    form = PostedForm(SCHEMA, SECRET, "source", given)
    assert form.read({"free": {"a": 1}})["free"] == {"a": 1}
    assert set(form.faults) == {("ratio",), ("free",)}
    assert built({}, faults={("ratio",): ["bad"]})["ratio"].faults == ["bad"]


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
        ({"type": "object", "additionalProperties": True}, "json"),
        ({"type": "array"}, "json"),
        ({"type": ["string", "object"], "properties": {}}, "text"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "text"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "text"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "number"),
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
    assert [f.name for f in fallbacks([*built({}).values()])] == ["source:free"]


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

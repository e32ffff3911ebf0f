"""The pipeline file (docs/pipeline-file.md): what parses, and each fault's words."""

import textwrap
from pathlib import Path

import msgspec
import pytest

from penstock.config.load import load_pipeline, parse_pipeline
from penstock.config.pipeline import Pipeline, PipelineFile
from penstock.errors import ConfigError
from penstock.model.catalog import DestinationSyncMode, StreamId, SyncMode

EXAMPLE = """\
version: "1.0"
pipeline: shop
source:
  use: airbyte:source-faker@7.2.1
  config: { count: 10000 }
  streams:
    - { name: users, namespace: shop, sync_mode: incremental, cursor_field: [updated_at], \
primary_key: [[id]], destination_sync_mode: append_dedup, columns: [id, name, email] }
  permissions: { network: { allowed_hosts: [] } }
  limits: { max_memory: 512mb, timeout_seconds: 600 }
transforms:
  - use: transform-sql
    config: { query: "SELECT id, lower(email) AS email FROM input" }
destination:
  use: parquet
  config: { path: ./lake }
state: { backend: sqlite }
"""

MINIMAL = "pipeline: p\nsource: {use: 'airbyte:x'}\ndestination: {use: parquet}\n"


def problems(text: str, **variables: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(textwrap.dedent(text), variables, name="shop.yml")
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value.problems


def with_line(line: str) -> str:
    return MINIMAL + line + "\n"


def test_design_example_parses_with_every_value() -> None:
    pipeline = parse_pipeline(EXAMPLE, {})
    assert (pipeline.pipeline, pipeline.dialect) == ("shop", "penstock")
    assert pipeline.source.use == "airbyte:source-faker@7.2.1"
    assert pipeline.source.config == {"count": 10000}
    (users,) = pipeline.source.streams or ()
    assert (users.name, users.namespace) == ("users", "shop")
    assert users.sync_mode is SyncMode.incremental
    assert users.destination_sync_mode is DestinationSyncMode.append_dedup
    assert users.cursor_field == ("updated_at",)
    assert users.primary_key == (("id",),)
    assert users.columns == ("id", "name", "email")
    assert pipeline.source.permissions is not None
    assert pipeline.source.permissions.configured() == {"network.allowed_hosts": ()}
    assert pipeline.source.limits is not None
    assert pipeline.source.limits.configured() == {"max_memory": 512 << 20, "timeout_seconds": 600}
    assert pipeline.transforms[0].config["query"].startswith("SELECT")
    assert (pipeline.destination.use, pipeline.destination.config) == (
        "parquet",
        {"path": "./lake"},
    )
    assert pipeline.state.backend == "sqlite"


def test_defaults_are_those_of_the_issue() -> None:
    pipeline = parse_pipeline(MINIMAL, {})
    evolution = pipeline.destination.schema_evolution
    assert msgspec.to_builtins(evolution) == {}  # nothing but defaults
    assert (evolution.new_column, evolution.removed_column) == ("add", "ignore")
    assert (evolution.type_change, evolution.nullability_change) == ("coerce", "allow")
    assert pipeline.source.streams is None
    assert pipeline.lanes == 1
    assert pipeline.strict is False
    assert pipeline.destination.deletes == "hard"
    assert pipeline.destination.metadata_columns == "native"
    assert (pipeline.timeouts.start, pipeline.timeouts.heartbeat) == (300.0, 10800.0)


def test_example_survives_a_round_trip() -> None:
    first = parse_pipeline(EXAMPLE, {}, name="a.yml")
    keys = {f: getattr(first, f) for f in PipelineFile.__struct_fields__}
    written = msgspec.json.encode(PipelineFile(**keys)).decode()  # JSON is YAML
    again = parse_pipeline(written, {}, name="a.yml")
    assert msgspec.structs.replace(again, lines=first.lines) == first  # of another shape


GOLDEN = """\
version: 2
pipelin: shop
source:
  use: airbyte:x
  stremas: [a]
  streams:
    - {name: a, sync_mode: incrementl}
    - {name: b, mode: mirror, sync_mode: incremental}
    - {nam: c}
  config: {port: ${PGPORT}, x: 1, x: 2}
  limits: {max_memory: 5zb, timeout_seconds: -1}
  permissions: {network: {allowed_hosts: ["a.*"]}, env: }
destination:
  use: parquet:./lake
  deletes: ${D}
lanes: 0
timeouts: {start: 1x}
state: {backend: postgres}
"""


def test_all_problems_at_once_in_the_order_of_the_file() -> None:
    assert problems(GOLDEN, D="hunter2") == [
        "shop.yml:1: version is '2'; this Penstock reads version '1.0'",
        "shop.yml:2: unknown key 'pipelin'; did you mean 'pipeline'?",
        "shop.yml:5: unknown key 'stremas' in source; did you mean 'streams'?",
        "shop.yml:7: source.streams[0].sync_mode: 'incrementl' is not a sync mode; "
        "did you mean 'incremental'?",
        "shop.yml:8: source.streams[1]: mode 'mirror' means sync_mode full_refresh, "
        "but sync_mode is incremental",
        "shop.yml:9: unknown key 'nam' in source.streams[2]; did you mean 'name'?",
        "shop.yml:10: key 'x' is written twice; first in line 10",
        "shop.yml:10: variable PGPORT is not set (source.config.port)",
        "shop.yml:11: source.limits.max_memory must be a size such as 512mb, 2gb or a number of "
        "bytes, not '5zb'",
        "shop.yml:11: source.limits.timeout_seconds must be a whole number of at least 1, not '-1'",
        "shop.yml:12: source.permissions.network.allowed_hosts[0] must be a host such as "
        "db.internal, or *.domain, not the text 'a.*'",
        "shop.yml:12: source.permissions.env is empty: list what is allowed, or remove the key to "
        "restrict nothing",
        "shop.yml:15: destination.deletes: ${D} holds none of hard, soft",
        "shop.yml:16: lanes must be 'auto' or a whole number of at least 1, not '0'",
        "shop.yml:17: timeouts.start must be a duration such as 30s, 5m, 1h30m or a number of "
        "seconds, not '1x'",
        "shop.yml:18: state: backend postgres needs url",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lane: 2", "shop.yml:4: unknown key 'lane'; did you mean 'lanes'?"),
        ("lanes: yes", "lanes must be 'auto' or a whole number of at least 1, not 'yes'"),
        ("lanes: true", "lanes must be 'auto' or a whole number of at least 1, not 'true'"),
        ("strict: yes", "strict must be true or false, not 'yes'"),
        ("state: sqlite", "state must be a mapping of keys to values, not 'sqlite'"),
        ("transforms: {use: x}", "transforms must be a list, not a mapping"),
        ("transforms: [{config: {}}]", "transforms[0] needs the key 'use'"),
        ("state: {backend: mysql}", "state.backend is 'mysql', which is unknown; known: "
         "postgres, sqlite"),
        ("state: {backend: postgrs}", "state.backend is 'postgrs', which is unknown; "
         "did you mean 'postgres'?"),
        ("spark: {conf: {a: [1]}}", "spark.conf.a must be text, not a list"),
        ("keep: 30", "keep must be a duration with its unit, such as 30d or 12h, not '30'"),
        ("keep: 0d", "keep must be more than 0"),
        ("max_record_bytes: 0", "max_record_bytes must be more than 0, not '0'"),
        ("timeouts: {total: [1]}", "timeouts.total must be a duration such as 30s, 5m, 1h30m or "
         "a number of seconds, not a list"),
        ("xyzzy: 1", "unknown key 'xyzzy'; known keys: version, pipeline, source"),
        ("pipeline: again", "key 'pipeline' is written twice; first in line 1"),
        ("lanes: !python/x 1", "tag !python/x is not allowed"),
        ("lanes: !!python/object:os.system x", "tag !!python/object:os.system is not allowed"),
    ],
)  # fmt: skip
def test_one_fault_one_message(line: str, message: str) -> None:
    found = problems(with_line(line))
    assert any(message in p for p in found), found
    assert all(p.startswith("shop.yml:") for p in found)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("intger", "'intger' is not a type; did you mean 'integer'?"),
        ("VARCHAR", "'VARCHAR' is not a type; did you mean 'string'?"),
        ("decimal", "'decimal' is not a type; did you mean 'decimal(18,4)'?"),
        ("'decimal(40,2)'", "a decimal has 1 to 38 digits, decimal(40,2) has not; write decimal("),
        ("'decimal(2,4)'", "a decimal has 1 to 38 digits, decimal(2,4) has not; write decimal("),
        ("'array<int>'", "'int' is not a type; did you mean 'integer'?"),
        ("'struct<a>'", "'a' is not a field: write name: type"),
        ("'struct<a: date, A: date>'", "the field 'A' comes twice"),
        ("'xyzzy'", "'xyzzy' is not a type; types: string, boolean, integer, number, date"),
        ("[date]", "must be a type such as integer, decimal(18,4), timestamp, json"),
        ("decimal(18,4)", "'decimal(18' is not a type; write "
         "decimal(DIGITS,DIGITS_AFTER_THE_POINT), inside { } in quotes"),
    ],
)  # fmt: skip
def test_types_of_columns_are_the_words_that_a_plan_prints(said: str, message: str) -> None:
    text = MINIMAL.replace("'airbyte:x'", f"'airbyte:x', defaults: {{types: {{price: {said}}}}}")
    place = "shop.yml:2: source.defaults.types.price"
    assert any(p.startswith(place) and message in p for p in problems(text)), problems(text)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{}", "source needs the key 'use'"),
        ("{use: }", "source.use must be text, not nothing"),
        ("{use: '  '}", "source.use is blank"),
        ("{use: 'a\\nb', config: 3}", "source.config must be a mapping of keys to values, not '3'"),
        ("{use: x, streams: []}", "source.streams is empty: list streams, or remove the key"),
        ("{use: x, streams: }", "source.streams is empty: list streams, or remove the key"),
        ("{use: x, streams: users}", "source.streams must be a list, not 'users'"),
        ("{use: x, streams: [a, a]}", "source: stream 'a' is listed twice"),
        ("{use: x, streams: [{name: a, columns: []}]}", "source.streams[0].columns is empty"),
        ("{use: x, streams: [{name: a, cursor_field: []}]}",
         "source.streams[0].cursor_field is empty"),
        ("{use: x, streams: [{name: a, destination_sync_mode: mirror}]}",
         "source.streams[0].destination_sync_mode: 'mirror' is not a destination sync mode, but a "
         "mode that goes with the key 'mode'"),
        ("{use: x, permissions: {network: {allowed_hosts: }}}",
         "source.permissions.network.allowed_hosts is empty: write [] to allow nothing, or remove "
         "the key to restrict nothing"),
        ("{use: x, permissions: {network: {allowed_hosts: [a.*.b]}}}",
         "must be a host such as db.internal, or *.domain, not 'a.*.b'"),
        ("{use: x, permissions: {env: {allowed_vars: [A-B]}}}",
         "must be the name of an environment variable, not 'A-B'"),
        ("{use: x, permissions: {env: {allowed_vars: [TOKEN, SPARK_AUTH_SECRET]}}}",
         "source.permissions.env.allowed_vars[1]: SPARK_AUTH_SECRET is a variable of Spark's or "
         "of Penstock's own, which no connector gets"),
        ("{use: x, permissions: }", "source.permissions is empty: list what is allowed"),
        ("{use: x, limits: {max_memory: }}", "source.limits.max_memory is empty: remove the key"),
        ("{use: x, limits: {max_memory: 0}}", "source.limits.max_memory must be more than 0"),
        ("{use: 'parquet:./a', config: {path: ./b}}",
         "source: the place is given twice: in use and in config.path"),
        ("{use: 'parquet:'}", "source: parquet: needs a place, as in parquet:./lake"),
    ],
)  # fmt: skip
def test_faults_of_a_connector(source: str, message: str) -> None:
    text = f"pipeline: p\nsource: {source}\ndestination: {{use: parquet}}\n"
    found = problems(text)
    assert any(message in p for p in found), found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "shop.yml:2:1: a list opened with '[' is not closed with ']' (it began in "
         "line 1)"),
        ("a:\n\tb: 1\n", "shop.yml:2:1: a tab in the indentation; YAML takes spaces only"),
        ("a: b: c\n", "shop.yml:1:5: a second ':' on one line, or wrong indentation"),
        ("a: 'x\n", "shop.yml:2:1: a quoted text is not closed (it began in line 1)"),
        ("a: 1\n---\nb: 2\n", "shop.yml:2: a second document begins here; a file holds one"),
        ("a: *x\n", "shop.yml:1: alias *x has no anchor &x above it"),
        ("a: @x\n", "shop.yml:1:4: this character cannot start a value"),
        ("a: \x01\n", "shop.yml:1: control character U+0001 is not allowed"),
        ("a: &a [*a]\n", "shop.yml:1: alias *a contains itself"),
        ("[a]: 1\n", "shop.yml:1: a key must be text, not a list or a mapping"),
        ("a: " + "[" * 200 + "]" * 200, "shop.yml:1: nested more than 100 levels deep"),
        ("- " * 100_000 + "1", "shop.yml:1: nested more than 100 levels deep"),
    ],
)  # fmt: skip
def test_broken_yaml_says_where_and_why(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(text, {}, name="shop.yml")
    assert caught.value.message == message
    assert caught.value.code == "config.yaml"


def test_aliases_work_and_cannot_blow_up() -> None:
    shared = MINIMAL.replace("{use: 'airbyte:x'}", "{use: 'airbyte:x', config: &c {a: 1}}")
    pipeline = parse_pipeline(shared + "transforms: [{use: t, config: *c}]\n", {})
    assert pipeline.transforms[0].config == {"a": 1}
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    assert "aliases repeat more than 100000 values" in problems(bomb)[0]


def test_a_chain_of_aliases_is_bounded_in_depth() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 400))
    assert problems(chain) == ["shop.yml:100: nested more than 100 levels deep"]


def test_merge_keys_give_way_to_the_mappings_own() -> None:
    text = MINIMAL + textwrap.dedent("""\
        transforms:
          - &t {use: t, config: {a: 1}}
          - {<<: *t, config: {b: 2}}
        """)
    assert parse_pipeline(text, {}).transforms[1].config == {"b": 2}


def test_lenient_turns_unknown_keys_into_warnings_and_nothing_else() -> None:
    pipeline = parse_pipeline(with_line("lane: 2"), {}, name="shop.yml", lenient=True)
    assert pipeline.warnings == ("shop.yml:4: unknown key 'lane'; did you mean 'lanes'?",)
    with pytest.raises(ConfigError):
        parse_pipeline(with_line("lanes: -1"), {}, lenient=True)


def test_a_key_with_nothing_after_it_is_its_default() -> None:
    assert parse_pipeline(with_line("transforms:\nlanes:\nspark: ~"), {}).lanes == 1


def test_numbers_serve_as_names() -> None:
    text = "pipeline: 2024\nsource: {use: x, streams: [1.50, 007]}\ndestination: {use: y}\n"
    pipeline = parse_pipeline(text, {})
    assert pipeline.pipeline == "2024"
    assert [s.name for s in pipeline.source.streams or ()] == ["1.50", "007"]


def test_config_takes_json_types_only() -> None:
    text = MINIMAL.replace(
        "'airbyte:x'",
        "x, config: {day: 2020-01-02, no: no, zip: 0123, n: 1e3, h: 0x10, "
        "big: 123456789012345678901234567890, inf: .inf, nothing: ~, t: !!str 5}",
    )
    assert parse_pipeline(text, {}).source.config == {
        "day": "2020-01-02",
        "no": "no",
        "zip": "0123",
        "n": 1000.0,
        "h": 16,
        "big": "123456789012345678901234567890",
        "inf": ".inf",
        "nothing": None,
        "t": "5",
    }


def test_wishes_are_a_streams_own_over_the_defaults() -> None:
    text = textwrap.dedent("""\
        pipeline: p
        source:
          use: x
          defaults: {mode: mirror, primary_key: id}
          streams:
            - users
            - {name: users, namespace: shop, sync_mode: incremental}
            - {name: shop.orders, primary_key: [a, [b, c]]}
        destination: {use: y}
        """)
    pipeline = parse_pipeline(text, {})
    plain = pipeline.stream_settings(StreamId(None, "users"))
    assert plain is not None
    assert (plain.mode, plain.sync_mode) == ("mirror", SyncMode.full_refresh)
    assert plain.primary_key == (("id",),)
    special = pipeline.stream_settings(StreamId("shop", "users"))
    assert special is not None
    assert (special.mode, special.sync_mode) == (None, SyncMode.incremental)
    assert special.destination_sync_mode is DestinationSyncMode.overwrite
    orders = pipeline.stream_settings(StreamId("shop", "orders"))
    assert orders is not None
    assert orders.primary_key == (("a",), ("b", "c"))
    assert pipeline.stream_settings(StreamId(None, "other")) is None
    assert parse_pipeline(MINIMAL, {}).stream_settings(StreamId("a", "b")) is not None


def test_reprs_hold_no_configuration() -> None:
    text = MINIMAL.replace("'airbyte:x'", "x, config: {password: hunter2}")
    pipeline = parse_pipeline(text + "spark: {conf: {fs.key: hunter2}}\n", {})
    shown = f"{pipeline!r} {pipeline.source!r} {pipeline.spark!r} {pipeline.state!r}"
    assert "hunter2" not in shown
    assert isinstance(pipeline, Pipeline)


# -- files
def test_missing_file_names_the_neighbour(tmp_path: Path) -> None:
    (tmp_path / "shop.yml").write_text(MINIMAL)
    with pytest.raises(ConfigError) as caught:
        load_pipeline(tmp_path / "shpo.yml", {})
    assert caught.value.code == "config.not_found"
    assert caught.value.message == f"there is no pipeline file {tmp_path / 'shpo.yml'}"
    assert caught.value.hint == f"did you mean {tmp_path / 'shop.yml'}?"
    with pytest.raises(ConfigError) as caught:
        load_pipeline(tmp_path / "nope.yml")
    assert "did you mean" not in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n"])
def test_empty_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shop.yml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, {})
    assert caught.value.code == "config.empty"
    assert caught.value.message == f"{file} is empty"


def test_folder_binary_and_list_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        load_pipeline(tmp_path, {})
    file = tmp_path / "shop.yml"
    file.write_bytes(b"a: 1\nb: \xff\xfe\n")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, {})
    assert caught.value.message == f"{file}:2: the file is not UTF-8 text"
    file.write_text("- a\n- b\n")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(str(file), {})
    assert caught.value.message == f"{file}:1: a pipeline file is a mapping of keys to values"
    file.write_bytes(b"a" * (16 * 1024 * 1024 + 1))
    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, {})
    assert caught.value.code == "config.too_large"


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "shop.yml"
    file.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode())
    assert load_pipeline(file, {}).pipeline == "shop"


def test_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "in"
    file.write_text(MINIMAL + "lane: 1\n")
    with file.open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with pytest.raises(ConfigError) as caught:
            load_pipeline("-", {})
    assert caught.value.problems == ["stdin:4: unknown key 'lane'; did you mean 'lanes'?"]


def test_one_fault_is_the_message_and_many_are_counted() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(with_line("lane: 1"), {}, name="a.yml")
    assert caught.value.message == "a.yml:4: unknown key 'lane'; did you mean 'lanes'?"
    assert caught.value.where == "a.yml:4"
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(with_line("lane: 1\nstat: 2"), {}, name="a.yml")
    assert caught.value.message == "a.yml has 2 problems"

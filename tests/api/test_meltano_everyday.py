"""An everyday ``meltano.yml``: nothing more is read than Meltano reads, and nothing vanishes.

The rules are Meltano's own: a plugin without ``pip_url`` runs an executable of the project or of
PATH; an environment's ``select`` takes the place of the plugin's; ``a.b.*`` selects the object b; a
schedule's ``env`` comes before ``config``; texts are cast by the ``kind`` of their setting.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.api.imported_file import ImportedFile
from penstock.api.meltano_project import meltano_pipelines
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline


def imported(tmp_path: Path, document: dict[str, Any]) -> ImportedFile:
    (tmp_path / "meltano.yml").write_text(yaml.safe_dump(document))
    (each,) = meltano_pipelines(tmp_path / "meltano.yml", tmp_path / "out" / "deep")[0]
    return each


def project(tap: dict[str, Any], target: dict[str, Any] | None = None, **more: Any) -> Any:
    target = target or {"name": "target-jsonl", "pip_url": "target-jsonl"}
    return {"plugins": {"extractors": [{"name": "tap-x", **tap}], "loaders": [target]}, **more}


def parsed(each: ImportedFile, profile: str | None = None) -> Pipeline:
    pipeline = parse_pipeline(each.text, {"PAGE": "1", "T": "[1]"}, profile=profile)
    assert pipeline.warnings == ()
    return pipeline


def streams_of(pipeline: Pipeline) -> dict[str, Any]:
    return {s.name: s for s in pipeline.source.streams or ()}


# -- an executable without `pip_url`


@pytest.mark.parametrize(
    ("executable", "use", "folder"),
    [
        ("./bin/tap x", "singer:'./bin/tap x'", "../.."),
        ("bin/tap", "singer:./bin/tap", "../.."),
        ("/opt/tap", "singer:/opt/tap", "../.."),
        ("tap-other", "singer:env tap-other", None),
    ],
)
def test_an_executable_without_pip_url_is_not_looked_up_in_the_index(
    tmp_path: Path, executable: str, use: str, folder: str | None
) -> None:
    plugin = {"name": "target-x", "namespace": "x", "executable": executable}
    each = imported(tmp_path, project({**plugin, "name": "tap-x"}, plugin))
    for section in (parsed(each).source, parsed(each).destination):
        assert (section.use, section.folder) == (use, folder)
    on_path = [note for note in each.notes if "must be on PATH" in note]
    assert bool(on_path) == (folder is None)


def test_a_plugin_of_the_hub_is_looked_up_though_it_names_its_executable(tmp_path: Path) -> None:
    tap = {"variant": "meltanolabs", "executable": "tap-x-run"}
    assert parsed(imported(tmp_path, project(tap))).source.use == "singer:tap-x"


# -- environments

SELECTED = {
    "select": ["users.id", "orders.*", "!logs.*"],
    "metadata": {"*": {"replication-method": "INCREMENTAL"}, "users": {"replication-key": "at"}},
    "config": {"auth": {"mode": "oauth", "user": "u"}, "port": 1},
}


def environment(tap: dict[str, Any], name: str = "tap-x") -> list[dict[str, Any]]:
    return [{"name": "prod", "config": {"plugins": {"extractors": [{"name": name, **tap}]}}}]


def test_an_environments_select_takes_the_place_of_the_whole_selection(tmp_path: Path) -> None:
    each = imported(tmp_path, project(SELECTED, environments=environment({"select": ["logs.*"]})))
    assert [*parsed(each).source.exclude] == ["logs"]
    prod = parsed(each, "prod")
    assert [*streams_of(prod)] == ["logs"] and not prod.source.exclude
    assert prod.source.defaults.sync_mode == "incremental"  # metadata stays
    everything = project(SELECTED, environments=environment({"select": ["*.*"]}))
    prod = parsed(imported(tmp_path, everything), "prod")
    assert not prod.source.exclude and "*" in streams_of(prod)


def test_an_environments_metadata_and_config_are_merged_key_by_key(tmp_path: Path) -> None:
    own = {
        "metadata": {"users": {"replication-method": "FULL_TABLE"}},
        "config": {"auth": {"mode": "key"}},
        "pip_url": "other",
    }
    each = imported(tmp_path, project(SELECTED, environments=environment(own)))
    prod = parsed(each, "prod")
    users = streams_of(prod)["users"]
    assert (users.sync_mode, users.cursor_field) == ("full_refresh", ("at",))
    assert users.columns == ("id",) and [*prod.source.exclude] == ["logs"]
    assert prod.source.config == {"auth": {"mode": "key", "user": "u"}, "port": 1}
    assert "environment prod: tap-x: pip_url" in each.notes


def test_an_environment_of_the_plugin_that_is_inherited_holds(tmp_path: Path) -> None:
    """Below what the inheriting plugin sets itself."""
    document = project(SELECTED, environments=environment({"config": {"port": 2, "own": 3}}))
    child = {"name": "tap-child", "inherit_from": "tap-x", "config": {"port": 4}}
    document["plugins"]["extractors"].append(child)
    config = parsed(imported(tmp_path, document), "prod").source.config
    assert (config["port"], config["own"]) == (4, 3)


# -- relative paths


@pytest.mark.parametrize(
    ("config", "folder"),
    [
        ({"files": [{"entity": "users", "path": "extract/users.csv"}]}, "../.."),
        ({"csv_files_definition": "defs.json"}, "../.."),
        ({"here": "data"}, "../.."),  # a folder of the project
        ({"output_dir": "$OUT"}, "../.."),
        ({"path": "/data/users.csv", "url": "https://example.com/a/b", "mode": "fast"}, None),
    ],
)
def test_relative_paths_start_in_the_project(
    tmp_path: Path, config: dict[str, Any], folder: str | None
) -> None:
    """Meltano runs each plugin in the project's folder."""
    (tmp_path / "data").mkdir()
    tap = {"pip_url": "tap-csv", "config": config}
    target = {"name": "target-jsonl", "pip_url": "target-jsonl", "config": config}
    each = imported(tmp_path, project(tap, target))
    made = parse_pipeline(each.text, {"OUT": "o"})
    assert (made.source.folder, made.destination.folder) == (folder, folder)
    if folder is not None:
        assert (tmp_path / "out" / "deep" / folder).resolve() == tmp_path.resolve()


def test_a_path_of_one_environment_starts_in_the_project_too(tmp_path: Path) -> None:
    own = environment({"config": {"path": "x.csv"}})
    each = imported(tmp_path, project({"pip_url": "tap-x"}, environments=own))
    assert parsed(each).source.folder == parsed(each, "prod").source.folder == "../.."


# -- nested and partial selections


@pytest.mark.parametrize(
    ("select", "streams", "exclude"),
    [
        (["u.id", "u.a.*"], [{"name": "u", "columns": ["id", "a"]}], []),
        (["u.id", "u.a.b.*"], [{"name": "u", "columns": ["id", "a.b"]}], []),
        (["u.a.b", "u.a.c"], [{"name": "u", "columns": ["a.b", "a.c"]}], []),
        (["u.id", "u.a*"], [{"name": "u", "columns": ["id", "a*"]}], []),
        (["u.id", "u.[ab]*"], [{"name": "u", "columns": ["id"]}], []),
        (["u.[ab]*", "v.*", "!u.secret"], ["u", "v"], ["u"]),
        (["u.a*", "v.*"], [{"name": "u", "columns": ["a*"]}, "v"], []),
        (["u.*_at", "u.*"], ["u"], []),
        (["u.*", "!u.secret", "!u.x*"], [{"name": "u", "columns": ["!secret", "!x*"]}], []),
        (["u.*", "!u.[xy]"], ["u"], ["u"]),
        (["u.secret", "!u.secret"], ["u"], ["u"]),
        (["u.*", "!u.a.secret"], [{"name": "u", "columns": ["!a.secret"]}], []),
        (["u.id", "u.secret", "!u.secret"], [{"name": "u", "columns": ["id"]}], []),
        (["u.a.*", "!u.a.secret"], [{"name": "u", "columns": ["a", "!a.secret"]}], []),
        (["u.id", "!*.secret"], [{"name": "u", "columns": ["id"]}], []),
        (["*.*", "!u.secret"], ["*", {"name": "u", "columns": ["!secret"]}], []),
        (
            ["*.id", "*.at", "!u.at"],
            [
                {"name": "*", "columns": ["id", "at"]},
                {"name": "u", "columns": ["id"]},
            ],
            [],
        ),
        (
            ["u.id", "v.*", "!*.secret"],
            [
                {"name": "u", "columns": ["id"]},
                {"name": "v", "columns": ["!secret"]},
            ],
            [],
        ),
    ],
)
def test_no_column_is_read_that_is_not_selected(
    tmp_path: Path, select: list[str], streams: list[Any], exclude: list[str]
) -> None:
    each = imported(tmp_path, project({"select": select}))
    parsed(each)
    source = yaml.safe_load(each.text)["source"]
    assert source.get("streams") == streams
    assert (source.get("exclude") or []) == exclude


def test_a_column_that_metadata_deselects_is_not_read(tmp_path: Path) -> None:
    metadata = {"u": {"secret": {"selected": False}}, "v": {"selected": False}}
    tap = {"select": ["u.id", "u.secret", "v.*"], "metadata": metadata}
    source = parsed(imported(tmp_path, project(tap))).source
    assert [(s.name, s.columns) for s in source.streams or ()] == [("u", ("id",)), ("v", None)]
    assert [*source.exclude] == ["v"]


def test_a_stream_that_metadata_are_about_has_no_more_columns(tmp_path: Path) -> None:
    metadata = {"u": {"replication-key": "at"}}
    tap = {"select": ["*.id", "*.secret", "!*.secret"], "metadata": metadata}
    streams = streams_of(parsed(imported(tmp_path, project(tap))))
    assert {name: s.columns for name, s in streams.items()} == {"*": ("id",), "u": ("id",)}


# -- schedules


def test_what_a_schedule_sets_is_a_profile_and_a_second_one_is_noted(tmp_path: Path) -> None:
    tap = {
        "config": {"port": 1, "url": "h/$PAGE", "deep": {"page": "${PAGE}"}},
        "settings": [{"name": "port", "kind": "integer"}, {"name": "ssl", "kind": "boolean"}],
    }
    pair = {"extractor": "tap-x", "loader": "target-jsonl"}
    env = {"TAP_X_PORT": "7", "TAP_X_SSL": False, "PAGE": 5, "OTHER": "o"}
    schedules = [
        {"name": "daily", "interval": "@daily", **pair, "env": env},
        {"name": "weekly", "interval": "@weekly", **pair},
        {"name": "again", "interval": "@hourly", **pair, "env": {"TARGET_JSONL_PATH": "p"}},
    ]
    target = {"name": "target-jsonl", "pip_url": "x", "settings": [{"name": "path"}]}
    each = imported(tmp_path, project(tap, target, schedules=schedules))
    daily = parsed(each, "daily").source.config
    assert daily == {"port": 7, "ssl": False, "url": "h/5", "deep": {"page": "5"}}
    assert parsed(each).source.config["port"] == 1
    assert parsed(each, "again").destination.config == {"path": "p"}
    said = "\n".join(each.notes)
    for words in ("schedule weekly, @weekly", "schedule again, @hourly", "set OTHER yourself"):
        assert words in said
    assert "--with daily" in said and f"penstock run {tmp_path}/out/deep/" in said


def test_two_schedules_of_a_job(tmp_path: Path) -> None:
    jobs = [{"name": "j", "tasks": ["tap-x target-jsonl dbt:run"]}]
    schedules = [{"name": n, "interval": i, "job": "j"} for n, i in (("a", "1"), ("b", "2"))]
    each = imported(tmp_path, project({}, jobs=jobs, schedules=schedules))
    assert "(schedule a, 1)" in each.text and any("schedule b, 2" in n for n in each.notes)


def test_a_secret_that_a_schedule_sets_is_a_variable(tmp_path: Path) -> None:
    schedules = [
        {"name": "s", "extractor": "tap-x", "loader": "target-jsonl", "env": {"TAP_X_KEY": "hush"}}
    ]
    tap = {"settings": [{"name": "key", "kind": "password"}]}
    each = imported(tmp_path, project(tap, schedules=schedules))
    assert "hush" not in each.text and "${TAP_X_KEY}" in each.text  # L10


# -- kinds


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("integer", "5432", 5432),
        ("integer", 5432, 5432),
        ("boolean", "true", True),
        ("boolean", "no", False),
        ("boolean", "False", False),
        ("decimal", "0.5", 0.5),
        ("decimal", "3", 3),
        ("array", '["a", "b"]', ["a", "b"]),
        ("object", '{"a": {"b": 1}}', {"a": {"b": 1}}),
        ("string", "01234", "01234"),
        ("string", "true", "true"),
        (None, "5", "5"),
        ("date_iso8601", "2024-01-01", "2024-01-01"),
        ("integer", "many", "many"),
        ("array", "a,b", "a,b"),
        ("object", "[1]", "[1]"),
        ("decimal", "NaN", "NaN"),
    ],
)
def test_a_text_becomes_a_value_of_its_settings_kind(
    tmp_path: Path, kind: str | None, given: Any, value: Any
) -> None:
    setting = {"name": "s", **({"kind": kind} if kind else {})}
    each = imported(tmp_path, project({"settings": [setting], "config": {"s": given}}))
    found = parsed(each).source.config["s"]
    assert (found, type(found)) == (value, type(value))
    wrong = kind not in (None, "string", "date_iso8601") and isinstance(value, str)
    assert any(f"s is no {kind}" in note for note in each.notes) == wrong


def test_defaults_are_cast_and_a_date_stays_its_text(tmp_path: Path) -> None:
    settings = [
        {"name": "port", "kind": "integer", "value": "1"},
        {"name": "since", "aliases": ["start"]},
        {"name": "list", "kind": "array"},
    ]
    tap = {"settings": settings, "config": {"list": "$T"}}
    (tmp_path / "meltano.yml").write_text(
        yaml.safe_dump(project(tap)).replace("list: $T", "list: $T\n      start: 2024-01-01")
    )
    (each,) = meltano_pipelines(tmp_path / "meltano.yml")[0]
    assert parsed(each).source.config == {"port": 1, "since": "2024-01-01", "list": "[1]"}
    assert any("list is an array, which no variable can hold" in note for note in each.notes)


# -- `.env`, which Meltano reads by itself


def test_what_only_the_env_file_sets_is_a_variable(tmp_path: Path) -> None:
    lines = "TAP_X_PASSWORD=hunter2-and-more\nTAP_X_HOST=db\nTAP_X__SELECT=['a.*']\n"
    lines += "TAP_X_PROD_HOST=other\nTAP_X_PORT=1\nOTHER=1\n"
    (tmp_path / ".env").write_text(lines)
    document = project({"config": {"host": "here"}})
    document["plugins"]["extractors"].append({"name": "tap-x-prod", "inherit_from": "tap-x"})
    document["schedules"] = [{"name": "s", "extractor": "tap-x", "loader": "target-jsonl"}]
    (tmp_path / "meltano.yml").write_text(yaml.safe_dump(document))
    each = meltano_pipelines(tmp_path / "meltano.yml", tmp_path / "out")[0][0]
    variables = {"TAP_X_PASSWORD": "p", "TAP_X_PORT": "1"}
    config = parse_pipeline(each.text, variables).source.config
    assert config == {"host": "here", "password": "p", "port": "1"}
    assert "hunter2" not in each.text
    notes = "\n".join(each.notes)
    assert "password comes from TAP_X_PASSWORD of the project's .env" in notes


def test_of_declared_settings_only_those_are_taken_from_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TAP_X_PAGE_SIZE=5\nTAP_X_ELSE=1\nTAP_X_KEY=k\n")
    settings = [{"name": "page_size", "kind": "integer"}, {"name": "key", "kind": "password"}]
    each = imported(tmp_path, project({"settings": settings}))
    config = parse_pipeline(each.text, {"TAP_X_PAGE_SIZE": "5", "TAP_X_KEY": "k"}).source.config
    assert config == {"page_size": 5, "key": "k"}

"""``meltano.yml`` as Meltano's own documentation writes it, into pipeline files that parse."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.api.imported_file import ImportedFile
from penstock.api.meltano_project import meltano_pipelines
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.errors import ConfigError

PROJECT = """
version: 1
default_environment: dev
project_id: 5c0a5d2e-0000-4b2e-8d0f-8f7b9b9c8f1a
send_anonymous_usage_stats: false
plugins:
  extractors:
  - name: tap-gitlab
    variant: meltanolabs
    pip_url: git+https://github.com/MeltanoLabs/tap-gitlab.git
    config:
      projects: meltano/meltano
      private_token: glpat-very-secret
      start_date: '2021-03-01T00:00:00Z'
      page_size: $GITLAB_PAGE_SIZE
      auth.mode: oauth
    select:
    - projects.*
    - commits.id
    - commits.author.name
    - issues.*
    - '!issues.author_email'
    - '!merge_requests.*'
    metadata:
      '*': {replication-method: INCREMENTAL}
      commits: {replication-method: FULL_TABLE, table-key-properties: [id]}
      users: {replication-key: updated_at, forced: 1}
  - name: tap-postgres--billing
    inherit_from: tap-postgres
    config: {database: billing, default_replication_method: LOG_BASED}
  - name: tap-postgres
    variant: meltanolabs
    pip_url: meltanolabs-tap-postgres==0.1.0 setuptools<80 wheel --no-deps
    config: {host: '${PGHOST}', port: 5432, database: shop, literal: 'costs $5 or $$'}
  loaders:
  - name: target-postgres
    variant: meltanolabs
    config: {user: loader, host: localhost}
  - name: target-jsonl
    pip_url: target-jsonl[s3]>=0.1,<2
  mappers:
  - name: hide-emails
  utilities:
  - name: dbt-postgres
environments:
- name: dev
- name: prod
  env: {GITLAB_PAGE_SIZE: '500'}
  config:
    plugins:
      extractors:
      - name: tap-gitlab
        select: ['projects.*']
        config: {start_date: '2015-01-01'}
      loaders:
      - name: target-postgres
        config: {host: db.internal, password: also-secret}
jobs:
- name: gitlab-hourly
  tasks: ['tap-gitlab hide-emails target-postgres dbt-postgres:run']
- name: billing
  tasks:
  - [tap-postgres--billing target-jsonl]
  - dbt-postgres:test
- name: gone
  tasks: [tap-gone target-postgres]
schedules:
- {name: gitlab, interval: '@hourly', job: gitlab-hourly}
- {name: pg, interval: '@daily', extractor: tap-postgres, loader: target-postgres, transform: skip}
"""
LOCK = {
    "plugin_type": "loaders",
    "name": "target-postgres",
    "variant": "meltanolabs",
    "pip_url": "meltanolabs-target-postgres~=0.3.0",
    "settings": [
        {"name": "host", "kind": "string"},
        {"name": "password", "kind": "password", "sensitive": True},
        {"name": "port", "kind": "integer", "value": 5432},
        {"name": "default_target_schema", "value": "$MELTANO_EXTRACT__LOAD_SCHEMA"},
    ],
}
TAP_LOCK = {
    "settings": [
        {"name": "private_token", "kind": "password"},
        {"name": "page_size", "kind": "integer"},
    ]
}
VALUES = {
    "GITLAB_PAGE_SIZE": "100", "TAP_GITLAB_PRIVATE_TOKEN": "t", "PGHOST": "db",
    "TARGET_POSTGRES_PASSWORD": "p",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "meltano.yml").write_text(PROJECT)
    for kind, name, lock in (
        ("loaders", "target-postgres--meltanolabs", LOCK),
        ("extractors", "tap-gitlab--meltanolabs", TAP_LOCK),
    ):
        folder = tmp_path / "plugins" / kind
        folder.mkdir(parents=True)
        (folder / f"{name}.lock").write_text(json.dumps(lock))
    return tmp_path / "meltano.yml"


def pipelines(path: Path) -> dict[str, ImportedFile]:
    return {each.pipeline: each for each in meltano_pipelines(path)[0]}


def parsed(each: ImportedFile, profile: str | None = None) -> Pipeline:
    pipeline = parse_pipeline(each.text, VALUES, profile=profile)
    assert pipeline.warnings == ()
    return pipeline


def test_what_runs_together_is_a_pipeline(project: Path) -> None:
    assert [*pipelines(project)] == [
        "tap-gitlab-to-target-postgres",  # a job that a schedule runs
        "tap-postgres-to-target-postgres",  # a schedule's own
        "tap-postgres--billing-to-target-jsonl",  # a job
    ]
    notes = meltano_pipelines(project)[1]
    assert any("tap-gone, target-postgres" in note for note in notes)
    assert any("mappers, utilities" in note for note in notes)
    assert any("dbt-postgres:run" in note for note in notes)


def test_config_select_and_metadata(project: Path) -> None:
    each = pipelines(project)["tap-gitlab-to-target-postgres"]
    source = parsed(each).source
    assert source.use == "singer:git+https://github.com/MeltanoLabs/tap-gitlab.git"
    assert source.config == {
        "projects": "meltano/meltano",
        "private_token": "t",
        "start_date": "2021-03-01T00:00:00Z",
        "page_size": 100,
        "auth": {"mode": "oauth"},
    }
    streams: dict[str, Any] = {s.name: s for s in source.streams or ()}
    assert [*streams] == ["projects", "commits", "issues"]  # `users` is not selected
    assert streams["commits"].columns == ("id", "author.name")
    assert streams["commits"].sync_mode == "full_refresh"
    assert streams["commits"].primary_key == (("id",),)
    assert source.defaults.sync_mode == "incremental"  # by `*`
    assert streams["issues"].columns == ("!author_email",)
    assert [*source.exclude] == ["merge_requests"]
    assert "glpat-very-secret" not in each.text and "also-secret" not in each.text  # L10


def test_a_plugin_whose_settings_nobody_declared_keeps_no_secret(tmp_path: Path) -> None:
    config = {
        "api_token": "own-secret", "auth": {"client_secret": "inner-secret", "auth_type": "oauth"},
        "servers": [{"host": "a", "password": "listed-secret"}], "other": "$TOKEN",
        "token": "${MY_TOKEN}", "start_date": "2024-01-01", "table_key_properties": "id",
    }  # fmt: skip
    extractor = {"name": "tap-own", "pip_url": "./tap", "config": config}
    plugins = {"extractors": [extractor], "loaders": [{"name": "target-jsonl"}]}
    (tmp_path / "meltano.yml").write_text(json.dumps({"plugins": plugins}))
    (each,) = meltano_pipelines(tmp_path / "meltano.yml")[0]
    for secret in ("own-secret", "inner-secret", "listed-secret"):
        assert secret not in each.text  # L10
    for kept in ("auth_type: oauth", "2024-01-01", "${MY_TOKEN}", "table_key_properties: id"):
        assert kept in each.text
    for variable in ("TAP_OWN_API_TOKEN", "TAP_OWN_AUTH_CLIENT_SECRET", "TAP_OWN_SERVERS_PASSWORD"):
        assert f"${{{variable}}}" in each.text
        assert any(f"set {variable}" in note for note in each.notes)


def test_the_target_is_given_what_meltano_gives_it(project: Path) -> None:
    destination = parsed(pipelines(project)["tap-gitlab-to-target-postgres"]).destination
    assert destination.use == "singer:meltanolabs-target-postgres"
    assert destination.install.constraints == ("meltanolabs-target-postgres~=0.3.0",)
    assert destination.config == {
        "port": 5432, "default_target_schema": "tap_gitlab", "user": "loader", "host": "localhost",
    }  # fmt: skip


def test_environments_are_profiles(project: Path) -> None:
    pipeline = parsed(pipelines(project)["tap-gitlab-to-target-postgres"], "prod")
    assert pipeline.pipeline == "tap-gitlab-to-target-postgres.prod"
    assert pipeline.source.config["start_date"] == "2015-01-01"
    assert pipeline.destination.config["host"] == "db.internal"
    assert pipeline.destination.config["password"] == "p"
    assert next(s.name for s in pipeline.source.streams or ()) == "projects"


def test_a_plugin_inherits(project: Path) -> None:
    each = pipelines(project)["tap-postgres--billing-to-target-jsonl"]
    pipeline = parsed(each)
    assert pipeline.source.use == "singer:meltanolabs-tap-postgres@0.1.0"
    assert pipeline.source.install.constraints == ("setuptools<80",)
    assert pipeline.source.config == {
        "host": "db", "port": 5432, "database": "billing", "literal": "costs $5 or $$",
        "default_replication_method": "LOG_BASED",
    }  # fmt: skip
    assert pipeline.destination.use == "singer:target-jsonl"
    assert pipeline.destination.install.constraints == ("target-jsonl>=0.1,<2",)


@pytest.mark.parametrize(
    ("pipeline", "note"),
    [
        ("tap-gitlab-to-target-postgres", "the mapper hide-emails"),
        ("tap-gitlab-to-target-postgres", "private_token was a secret in the project"),
        ("tap-gitlab-to-target-postgres", "metadata of users: forced"),
        ("tap-gitlab-to-target-postgres", "metadata of users, which is not selected"),
        ("tap-gitlab-to-target-postgres", "set GITLAB_PAGE_SIZE yourself"),
        ("tap-gitlab-to-target-postgres", "reads password from TARGET_POSTGRES_PASSWORD"),
        ("tap-postgres-to-target-postgres", "pip's options --no-deps"),
        ("tap-postgres-to-target-postgres", "the further package wheel"),
        ("tap-postgres--billing-to-target-jsonl", "the extras [s3] of target-jsonl"),
        ("tap-postgres--billing-to-target-jsonl", "meltano state get"),
    ],
)
def test_what_is_not_carried_over_is_said(project: Path, pipeline: str, note: str) -> None:
    each = pipelines(project)[pipeline]
    assert any(note in said for said in each.notes), each.notes
    assert any(note in line for line in each.text.splitlines() if line.startswith("# Not carried"))


SELECTS: list[tuple[dict[str, Any], list[Any]]] = [
    # metadata selects nothing, and keeps the columns of the pattern that does
    ({"select": ["a.*"], "metadata": {"b": {"replication-key": "at"}}}, ["a"]),
    (
        {"select": ["*.id"], "metadata": {"b": {"replication-key": "at"}}},
        [
            {"name": "*", "columns": ["id"]},
            {"name": "b", "columns": ["id"], "cursor_field": "at"},
        ],
    ),
    # a pattern of metadata holds for the streams that are listed
    (
        {"select": ["pub-a.*", "x.*"], "metadata": {"pub-*": {"replication-method": "FULL_TABLE"}}},
        [{"name": "pub-a", "sync_mode": "full_refresh"}, "x"],
    ),
    # what several select has the columns of all
    ({"select": ["*.*", "a.id"]}, ["*", "a"]),
    ({"select": ["a.id", "a.name", "a.id"]}, [{"name": "a", "columns": ["id", "name"]}]),
]


@pytest.mark.parametrize(("tap", "streams"), SELECTS)
def test_nothing_is_read_that_is_not_selected(
    tmp_path: Path, tap: dict[str, Any], streams: list[Any]
) -> None:
    plugins = {"extractors": [{"name": "tap-x", **tap}], "loaders": [{"name": "target-jsonl"}]}
    (tmp_path / "meltano.yml").write_text(json.dumps({"plugins": plugins}))
    (each,) = meltano_pipelines(tmp_path / "meltano.yml")[0]
    parsed(each)
    assert yaml.safe_load(each.text)["source"]["streams"] == streams


def test_files_that_are_included_and_taps_without_a_job(tmp_path: Path) -> None:
    (tmp_path / "meltano.yml").write_text(
        textwrap.dedent("""\
        include_paths: [./sub/*.meltano.yml]
        plugins:
          loaders: [{name: target-jsonl}]
        """)
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.meltano.yml").write_text("plugins: {extractors: [{name: tap-csv}]}")
    (each,) = meltano_pipelines(tmp_path / "meltano.yml")[0]
    pipeline = parsed(each)
    assert (pipeline.source.use, pipeline.destination.use) == (
        "singer:tap-csv",
        "singer:target-jsonl",
    )
    assert pipeline.source.streams is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "import.file"),
        ("- a", "import.file"),
        ("a: [", "import.file"),
        ("plugins: {extractors: [{name: tap-a}]}", "import.nothing"),
        ("plugins: 3\njobs: x\nschedules: [1, null]", "import.nothing"),
        ("plugins: {extractors: [{name: a, inherit_from: a}], loaders: [null]}", None),
    ],
)
def test_a_bad_project_is_refused(tmp_path: Path, text: str, code: str | None) -> None:
    (tmp_path / "meltano.yml").write_text(text)
    try:
        meltano_pipelines(tmp_path / "meltano.yml")
    except ConfigError as refused:
        assert code in (None, refused.code)
    else:
        assert code is None

"""Each page of the documents, followed from its first block to its last (``doc_follow``).

Pages that need a database: ``test_pages_postgres.py``; an engine: ``e2e/test_containers.py``; a
cluster: ``e2e/test_cluster.py``; other programs' Python: ``test_schedulers.py``.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from doc_blocks import ROOT, RUNNABLE, blocks
from doc_follow import AS_FAKER, FAKER, OWN_FAKER, SHOP, Folder, Heard, assert_said, people
from doc_programs import CONTACTS, FAKER_SOURCE, MELTANO, SHOP_SOURCE, TAP

from penstock.sdk.testing import ScriptedHost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.append(str(ROOT / "tests" / "examples"))

import built

pytestmark = [pytest.mark.spark, pytest.mark.network]

HERE = Path(__file__).parent
V4 = """version: "1.0"
pipeline: v4
source:
  use: source-numbers
  config: { rows: 100 }
  streams: [{ name: numbers, sync_mode: full_refresh }]
destination: { use: dest-count, write_mode: append }
"""


def project(folder: Folder) -> None:
    """``my-project`` of the Syncmaven host, whose models Spark reads."""
    command = f"{sys.executable} {folder.path}/my-destination"
    folder.file("my-project/models/users.sql", "SELECT 1 AS id, 'a@x.io' AS email")
    folder.file(
        "my-project/connections/crm.yml",
        f"package: {{ type: npm, dir: ., command: {command} }}\ncredentials: {{ key: a }}\n",
    )
    for sync in ("contacts", "deals"):
        text = f"model: users\ndestination: crm\nstream: {sync}\n"
        folder.file(f"my-project/syncs/{sync}.yml", text)


def test_every_page_with_blocks_is_followed() -> None:
    tests = "".join(
        path.read_text()
        for path in (*HERE.glob("test_*.py"), *(HERE.parent / "e2e").glob("test_c*.py"))
    )
    pages = {block.page for block in blocks(*RUNNABLE)}
    assert not [page for page in pages if f'"{page}"' not in tests]


def test_the_readme(
    equipped: Folder,
    shared_spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    equipped.names = {"spark": shared_spark, "deltalake": deltalake}
    equipped.replaced = {
        # With these tests' PATH it would find other Pythons than ``./test``, and make .venv anew.
        "./penstock run": f"PATH='{os.environ['PATH']}' {ROOT}/penstock run",
        "./test ": "true ",  # this is what runs
        '"count": 10000}': '"count": 300}',
        '("lake/': f'("{tmp_path}/lake/',  # Spark's Java keeps the folder that it was started in
    }
    equipped.follow("README.md")


def test_the_tour(
    equipped: Folder,
    shared_spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import duckdb

    monkeypatch.chdir(tmp_path)
    equipped.names = {"spark": shared_spark, "duckdb": duckdb}
    equipped.replaced = {
        '"count": 10000}': '"count": 300}',
        "doctor --fix": "doctor",  # spark/test_spark_archive.py
        f"run {FAKER} parquet": f"run {OWN_FAKER} parquet",
        "run airbyte:source-faker syncmaven": f"run {OWN_FAKER} syncmaven",
        "airbyte:source-faker ": f"{FAKER} ",
        '("lake/': f'("{tmp_path}/lake/',  # Spark's Java keeps the folder that it was started in
        '("tables/': f'("{tmp_path}/tables/',
    }
    equipped.file("tap.json", "{}")
    (tmp_path / "numbers.wasm").symlink_to(built.c_source())
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / "source_numbers.wasm").symlink_to(built.c_source())
    (plugins / "dest_count.wasm").symlink_to(built.c_destination())
    equipped.environ["RAPIDBYTE_CONNECTOR_DIR"] = str(plugins)
    equipped.file("rapidbyte_pipeline.yaml", V4)

    equipped.follow(
        "tour.md",
        elsewhere={
            "singer:meltanolabs-tap-postgres delta": "test_pages_postgres.py",
            "airbyte:docker:": "e2e/test_containers.py",
            'format("penstock")': "test_pages_postgres.py::test_python",
            "singer:meltanolabs-tap-postgres airbyte": "test_pages_postgres.py",
            "run ./my-project": "projects.md",
            "run shop.yaml crm.yaml": "cli-run.md",
            "exec penstock serve": "cli-serve.md",
        },
    )


def test_the_index() -> None:
    (block,) = blocks(*RUNNABLE, page="index.md")
    assert_said(block, "README.md")


def test_installing(equipped: Folder) -> None:
    equipped.replaced = dict.fromkeys(("pip install", "uv tool install", "uv build"), "true")
    equipped.follow("install.md")


def test_the_tutorial(folder: Folder) -> None:
    """In an empty folder with an empty home: no command needs what no line before it made."""
    assert [path.name for path in folder.path.iterdir()] == ["home"]
    folder.follow(
        "first-pipeline.md",
        written={"pipeline: people": ("people.yaml", "true")},  # the next block plans and runs it
    )
    users = deltalake.DeltaTable(folder.path / "lake" / "users").to_pyarrow_table()
    assert users.num_rows == len({*users["id"].to_pylist()}) == 1000
    assert deltalake.DeltaTable(folder.path / "lake2" / "users").to_pyarrow_table().num_rows == 10


def test_the_example_of_a_first_pipeline(folder: Folder) -> None:
    text = (ROOT / "examples" / "pipelines" / "faker-to-delta.yaml").read_text()
    folder.file("faker.yaml", text.replace("count: 1000", "count: 20"))
    folder.shell("the example", "penstock run faker.yaml")
    assert deltalake.DeltaTable(folder.path / "lake" / "users").to_pyarrow_table().num_rows == 20


def test_syncmaven_destinations(equipped: Folder) -> None:
    equipped.file("credentials.json", '{"apiKey": "k"}')
    equipped.environ["API_KEY"] = "k"
    equipped.replaced = {**AS_FAKER, '"count": 1000}': '"count": 50}'}
    equipped.follow("syncmaven.md")


def test_projects(equipped: Folder) -> None:
    project(equipped)
    equipped.follow(
        "projects.md",
        written={"model: users": ("my-project/syncs/contacts.yml", "penstock run ./my-project")},
    )


def test_enrichments(equipped: Folder) -> None:
    equipped.environ["API_KEY"] = "k"
    equipped.replaced = {**AS_FAKER}
    equipped.follow("enrichments.md")


def test_singer(equipped: Folder) -> None:
    equipped.replaced = {**AS_FAKER, "singer:tap-github": "singer:./tap-github"}
    equipped.file("tap.json", "{}")
    equipped.environ["GITHUB_TOKEN"] = "secret-token"
    equipped.follow("singer.md")
    assert [*(equipped.path / "out").glob("users*.jsonl")]


def test_secrets(equipped: Folder) -> None:
    equipped.environ |= {"PGPASSWORD": "hunter-22", "API_TOKEN": "token-33"}
    equipped.follow("secrets.md")
    assert "hunter-22" not in equipped.said and "token-33" not in equipped.said


def test_reverse_etl(equipped: Folder) -> None:
    people(equipped)
    equipped.replaced = {"airbyte:./my-destination": "airbyte:./destination"}
    equipped.follow("reverse-etl.md", "rejects.md")


def test_transforms(equipped: Folder) -> None:
    equipped.replaced = {**AS_FAKER}
    equipped.follow(
        "transforms.md",
        "transforms-builtin.md",
        "transforms-spark.md",
        "transforms-components.md",
        elsewhere={"clean.wasm": "examples/test_python_examples.py"},
    )


def test_permissions(equipped: Folder) -> None:
    (equipped.path / "source.wasm").symlink_to(built.c_source())
    equipped.follow("permissions.md")


def test_rapidbyte(equipped: Folder) -> None:
    (equipped.path / "numbers.wasm").symlink_to(built.c_source())
    (equipped.path / "source_numbers.wasm").symlink_to(built.c_source())
    (equipped.path / "dest_count.wasm").symlink_to(built.c_destination())
    equipped.environ["RAPIDBYTE_CONNECTOR_DIR"] = str(equipped.path)
    equipped.file("pipeline.yaml", V4)
    equipped.replaced = {"resources:\n": f"{V4}resources:\n"}
    equipped.follow(
        "rapidbyte.md", "rapidbyte-v4.md", "rapidbyte-errors.md",
        elsewhere={"dest-postgres": "e2e/test_wasm_postgres.py"},
    )  # fmt: skip


def test_writing_a_component(equipped: Folder) -> None:
    """With the example in C: the builder takes a minute for that in Python, which is built, run
    and compared with this one in examples/test_python_examples.py."""
    equipped.replaced = {
        "python-source": "c-source",
        "python_source": "c_source",
        "examples/rapidbyte/build.py": f"{ROOT}/examples/rapidbyte/build.py",
        "uv run --no-project --with 'componentize": "true # the same",
    }
    equipped.follow("authoring.md", elsewhere={"import exports": "examples/rapidbyte"})


def test_watching_runs(equipped: Folder, server: Heard) -> None:
    equipped.file("shop.yaml", SHOP)
    equipped.replaced = {
        "http://collector:4318": server.url,
        "http://marquez:5000": server.url,
        "pip install": "true",
    }
    equipped.follow("telemetry.md")
    assert {"/v1/traces", "/v1/metrics", "/api/v1/lineage"} <= {path for path, _ in server.posts}


def test_troubleshooting(equipped: Folder) -> None:
    equipped.file("shop.yaml", SHOP)
    equipped.shell("presupposed", "penstock run shop.yaml")
    equipped.follow("troubleshooting.md")


def test_schedules(equipped: Folder, server: Heard) -> None:
    srv = equipped.path / "srv"
    (srv / "venv").mkdir(parents=True)
    (srv / "venv" / "bin").symlink_to(Path(sys.executable).parent)
    equipped.file("srv/shop.yaml", SHOP.replace("./source", "../source"))
    equipped.file("srv/.env", "UNUSED=1\n")
    equipped.replaced = {**AS_FAKER, "/srv/penstock": str(srv), "pipeline: shop": "pipeline: told"}
    equipped.environ["ALERT_URL"] = server.url
    equipped.follow("schedule.md", elsewhere={"import": "test_schedulers.py"})


def test_reading_tables(
    equipped: Folder, shared_spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every way reads all rows: the value of each block's last line."""
    monkeypatch.chdir(equipped.path)
    given = """--config '{"count": 20}'"""
    for lake in ("parquet:lake", "delta:delta_lake"):
        equipped.shell(lake, f"penstock run {OWN_FAKER} {lake} {given} --name {lake[:5]}")
    counts: list[int] = []

    def counted(found: Any) -> None:
        found = found[0] if isinstance(found, tuple) else found
        counts.append(found if isinstance(found, int) else len(found))

    equipped.names = {"spark": shared_spark, "counted": counted}
    equipped.replaced = {  # Spark's Java keeps the folder that it was started in
        'parquet("lake/': f'parquet("{equipped.path}/lake/',
        'load("delta_lake/': f'load("{equipped.path}/delta_lake/',
    }
    equipped.last = "counted"
    equipped.follow("reading-tables.md")
    assert counts == [20] * 8


def test_connectors_in_python(
    equipped: Folder, shared_spark: "SparkSession", tmp_path: Path
) -> None:
    """Each of its programs obeys its protocol: a source into a table, a destination and an
    enrichment under the test kit that the page shows."""
    source, destination, enrichment, kit = blocks("python", page="sdk.md")
    rows = "def fetch(url, changed_after):\n    return [dict(id=1, total=2.5, changed='a')]\n"
    equipped.file("orders.py", rows + source.text)
    config = '{"url": "http://a.example"}'
    said = equipped.shell(
        source, f"penstock run airbyte:'python orders.py' parquet:./lake --config '{config}'"
    )
    assert "1 row in" in said
    equipped.file("crm.py", "def post(url, rows): ...\n" + destination.text)
    names = {"CONNECTOR": [sys.executable, str(tmp_path / "crm.py")], "sys": sys}
    exec(compile(f"{kit.text}\ntest_contacts()", str(kit), "exec"), names)
    equipped.file("domains.py", "from penstock.sdk import *\n" + enrichment.text)
    host = ScriptedHost([sys.executable, str(tmp_path / "domains.py")])
    assert host.enrich([{"email": "a@x.io"}]) == [[{"email": "a@x.io", "domain": "x.io"}]]


def test_the_command_line(folder: Folder, tmp_path: Path, connector_environments: Path) -> None:
    """It stops the Spark that stays for these tests, so its page is the last of the last test: one
    that comes later starts another."""
    folder.python("tap-x", TAP)
    folder.python("source-x", SHOP_SOURCE)
    folder.python("source-faker", FAKER_SOURCE)
    for name in ("tap.json", "s.json"):
        folder.file(name, "{}")
    for name in ("target.json", "config.json"):
        folder.file(name, json.dumps({"destination": f"parquet:{tmp_path}/served"}))
    users = {"name": "users", "json_schema": {"type": "object", "properties": {}}}
    asked = {"stream": users, "sync_mode": "incremental", "destination_sync_mode": "append"}
    folder.file("c.json", json.dumps({"streams": [{**asked, "generation_id": 1, "sync_id": 1}]}))
    folder.file("meltano.yml", MELTANO)
    folder.file(
        "shop.yaml",
        "pipeline: shop\nsorce: 1\nsource:\n  use: airbyte:./source-x\n  config:\n"
        "    host: a\n    password: ${PGPASSWORD}\ndestination: { use: 'parquet:./shop' }\n",
    )
    project(folder)
    folder.python("my-destination", CONTACTS)

    def pipelines() -> None:
        for name in ("shop", "crm"):
            text = SHOP.replace("shop\n", f"{name}9\n", 1).replace("shops", name * 2)
            text = text.replace("source-shop", "source-x").replace("./", f"{tmp_path}/")
            folder.file(f"{name}.yaml", text)  # one pipeline, from either folder
            folder.file(f"pipelines/{name}.yaml", text)

    folder.replaced = {
        **AS_FAKER,
        "~/": f"{tmp_path}/",
        "shop,crm": "shop9,crm9",
        "/var/lib/penstock": f"{tmp_path}/home",
        "rejects shop": "rejects null",
        "runs shop 01M7XSABSQKS4E4G1K1VWFWA18": "runs shop",
    }
    for place in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (tmp_path / place).mkdir(parents=True)

    def rejected() -> None:
        text = SHOP_SOURCE.replace("range(1, 6)", "range(0, 6)").replace(
            '"id": n', '"id": n or None'
        )
        folder.python("source-null", text)
        folder.shell("presupposed", "penstock run airbyte:./source-null parquet:./null --name null")

    before = {"run shop.yaml crm.yaml": pipelines, "penstock rejects": rejected}
    folder.follow(
        "cli.md",
        "cli-run.md",
        "cli-plan.md",
        "cli-new.md",
        "cli-state.md",
        "cli-serve.md",
        "cli-machine.md",
        before=before,
    )
    # What other tests use must stay: scripts of an environment name the home that it was built by.
    folder.replaced = {"airbyte:source-faker ": f"{FAKER} "}
    own = tmp_path / "home of its own" / "connectors"
    shutil.copytree(connector_environments, own, symlinks=True, copy_function=os.link)
    folder.environ["PENSTOCK_HOME"] = str(own.parent)
    folder.follow("cli-connectors.md")

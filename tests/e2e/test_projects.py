"""Syncmaven projects as they are (issue 12, part 7): models of a real Postgres and of Spark into
destinations, one pipeline a sync."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from connector_sites import STUBS
from pipelines import MASTER

from penstock.cli.app import dispatch
from penstock.config.home import Home
from penstock.protocols import load as load_protocol
from penstock.store.open import open_store
from postgres_cluster import running_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CDK = "@syncmaven/node-cdk@0.0.11"
NODE_DESTINATION = """
const fs = require("fs");
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "kept",
  credentialsType: z.object({ file: z.string() }),
  defaultStream: "companies",
  streams: ["companies", "contacts"].map((name) => ({
    name,
    rowType: z.object({ id: z.number().int() }).passthrough(),
    createOutputStream: async (config, ctx) => ({
      handleRow: async (row) => {
        fs.appendFileSync(config.credentials.file, JSON.stringify({ name, row }) + "\\n");
      },
    }),
  })),
});
"""
Ran = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The URL of a database with the table ``users``."""
    with running_cluster() as folder:
        url = f"postgresql://penstock@/postgres?host={folder}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE users (id int, email text, balance numeric(10, 2), tags text[],"
                " at timestamptz)"
            )
        yield url


class Crm:
    """A project in a folder called ``crm``."""

    def __init__(self, folder: Path, database: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.url, self._capsys = folder / "crm", database, capsys
        self.home = Home(folder / "home")
        self.sink = folder / "sink.jsonl"
        self.write(".env", f"PG_URL='{database}'\nSINK={folder}/nobody.jsonl\n")
        self.write(".env.local", f"SINK={self.sink}\n")
        self.write(
            "models/users.sql",
            '--{{ config "datasource" env.PG_URL }}\n--{{ config "cursor" "at" }}\n'
            "SELECT id, email, tags, at FROM users\n"
            "WHERE :cursor IS NULL OR at > :cursor ORDER BY at -- in order;\n",
        )
        self.connection("kept", sink="{{ env.SINK }}")
        self.write("syncs/contacts.yml", "model: users\ndestination: kept\nstream: contacts\n")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("TRUNCATE users")

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def connection(self, name: str, *, sink: str, **told: Any) -> None:
        """A connection to the stub, which is told by the one argument that its command has."""
        script = self.folder / f"{name}.py"
        told = {"sink": None, "streams": ["companies", "contacts"], **told}
        script.write_text(
            f"import json, os, runpy, sys\ntold = {told!r}\n"
            f"told['sink'] = open({str(self.folder / name)!r}).read()\n"
            f"sys.argv = ['stub', json.dumps(told)]\n"
            f"runpy.run_path({str(STUBS / 'stub_syncmaven.py')!r}, run_name='__main__')\n"
        )
        (self.folder / name).write_text(str(self.sink))
        self.write(
            f"connections/{name}.yml",
            f"package:\n  type: npm\n  dir: .\n  command: {sys.executable} {script.name}\n"
            f"credentials: {{ place: '{sink}' }}\n",
        )

    def users(self, *ids: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for id_ in ids:
                connection.execute(
                    "INSERT INTO users VALUES (%s, %s, 1.5, ARRAY['a', NULL],"
                    " timestamptz '2026-01-01 00:00:00.000001+00' + %s * interval '1 day')",
                    (id_, f"u{id_}@x.io", id_),
                )

    def verb(self, verb: str, *words: str) -> Ran:
        code = dispatch(verb, [str(self.folder), "--home", str(self.home.path), "--json", *words])
        return code, json.loads(self._capsys.readouterr().out)

    def run(self, *words: str) -> Ran:
        return self.verb("run", *words)

    def lines(self, type_: str) -> list[dict[str, Any]]:
        text = self.sink.read_text() if self.sink.exists() else ""
        return [m for line in text.splitlines() if (m := json.loads(line))["type"] == type_]

    def ids(self) -> list[int]:
        return [m["payload"]["row"]["id"] for m in self.lines("row")]

    def saved(self, pipeline: str) -> dict[str, Any]:
        store = open_store(self.home.state_url())
        try:
            told = load_protocol("spark").state.describe(store.states(pipeline))
        finally:
            store.close()
        return {e["name"]: e["state"] for e in told["streams"]}


MakeCrm = Callable[[], Crm]


@pytest.fixture
def crm(
    tmp_path: Path,
    database: str,
    shared_spark: "SparkSession",
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Crm:
    del shared_spark
    monkeypatch.setenv("PENSTOCK_SPARK_MASTER", MASTER)
    return Crm(tmp_path, database, capsys)


def test_a_project_runs_as_it_is_and_a_date_cursor_brings_only_what_is_new(crm: Crm) -> None:
    """L1: the cursor is bound, to the microsecond."""
    crm.users(1, 2, 3)
    code, told = crm.run()
    assert code == 0, told
    (sync,) = told["syncs"]
    assert (sync["sync"], sync["pipeline"], sync["status"]) == (
        "contacts", "crm.contacts", "succeeded",
    )  # fmt: skip
    assert sync["report"]["streams"][0]["target"] == "contacts"
    assert sorted(crm.ids()) == [1, 2, 3]
    (start,) = crm.lines("start-stream")
    assert start["payload"]["stream"] == "contacts"
    assert start["payload"]["connectionCredentials"] == {"place": str(crm.sink)}
    assert start["payload"]["fullRefresh"] is False
    row = next(m["payload"]["row"] for m in crm.lines("row") if m["payload"]["row"]["id"] == 1)
    assert row["tags"] == ["a", None] and row["at"] == "2026-01-02T00:00:00.000001Z"
    assert crm.saved("crm.contacts")["users"]["cursor"] == "2026-01-04T00:00:00.000001Z"
    code, told = crm.run()
    assert (code, len(crm.ids())) == (0, 3), told
    crm.users(4)
    code, told = crm.run()
    assert (code, crm.ids()[3:]) == (0, [4]), told


def test_a_cursor_of_text_is_never_part_of_the_query(crm: Crm) -> None:
    crm.write(
        "models/users.yml",
        "datasource: ${env.PG_URL}\ncursor: email\n"
        "query: SELECT id, email FROM users WHERE :cursor IS NULL OR email > :cursor\n",
    )
    (crm.folder / "models/users.sql").unlink()
    crm.users(1, 2)
    nasty = "'); DROP TABLE users; --"
    with psycopg.connect(crm.url, autocommit=True) as connection:
        connection.execute("UPDATE users SET email = %s WHERE id = 2", ("\u00fc" + nasty,))
    assert crm.run()[0] == 0
    assert crm.saved("crm.contacts")["users"]["cursor"] == "\u00fc" + nasty
    crm.users(3)
    with psycopg.connect(crm.url, autocommit=True) as connection:
        connection.execute("UPDATE users SET email = %s WHERE id = 3", ("\u00fd",))
    code, told = crm.run()
    assert (code, crm.ids()[2:]) == (0, [3]), told


def test_one_sync_fails_without_the_others_and_the_worst_exit_code_counts(crm: Crm) -> None:
    crm.users(1)
    crm.connection("broken", sink="{{ env.SINK }}", halt={"at": "row"})
    crm.write("models/numbers.yml", "query: SELECT id FROM range(4)\n")
    crm.write("syncs/a.yml", "model: users\ndestination: broken\n")
    crm.write("syncs/numbers.yml", "model: numbers\ndestination: kept\noptions: {}\n")
    crm.write("syncs/off.yml", "model: numbers\ndestination: kept\ndisabled: true\n")
    code, told = crm.run()
    assert code == 5
    assert [(s["sync"], s["status"]) for s in told["syncs"]] == [
        ("a", "failed"), ("contacts", "succeeded"), ("numbers", "succeeded"),
    ]  # fmt: skip
    assert told["syncs"][0]["error"]["code"] == "destination.halted"
    assert crm.saved("crm.a") == {} and crm.saved("crm.contacts")
    streams = [m["payload"]["stream"] for m in crm.lines("start-stream")]
    assert streams == ["companies", "contacts", "companies"]  # the default where none is named
    code, told = crm.run("--select", "off,numbers")
    assert code == 0 and [s["sync"] for s in told["syncs"]] == ["numbers", "off"]


def test_plan_and_check_tell_each_sync_and_rejects_are_of_one(crm: Crm) -> None:
    crm.connection(
        "picky", sink="x", row_type={"type": "object", "properties": {"id": {"maximum": 1}}}
    )
    crm.write("syncs/picky.json", "{model: 'users', destination: 'picky', // JSON5\n}")
    crm.users(1, 2)
    code, told = crm.verb("plan")
    assert code == 0, told
    assert [(s["sync"], s["pipeline"]) for s in told["syncs"]] == [
        ("contacts", "crm.contacts"), ("picky", "crm.picky"),
    ]  # fmt: skip
    columns = told["syncs"][0]["streams"][0]["columns"]
    assert [(c["name"], c["type"]) for c in columns] == [
        ("id", "integer"), ("email", "string"), ("tags", "json"), ("at", "timestamp"),
    ]  # fmt: skip
    code, told = crm.verb("check")
    assert code == 0 and [s["status"] for s in told["syncs"]] == ["succeeded", "succeeded"], told
    code, told = crm.run("--select", "picky")
    assert code == 0, told
    report = told["syncs"][0]["report"]["streams"][0]
    assert (report["committed"], report["rejected"]) == (1, 1)


def test_keys_of_a_pipeline_file_compare_with_what_was_sent(crm: Crm) -> None:
    crm.write(
        "models/users.yml",
        "datasource: ${env.PG_URL}\nquery: SELECT id, email, balance FROM users;\n",
    )
    (crm.folder / "models/users.sql").unlink()
    crm.write(
        "syncs/contacts.yml",
        "model: users\ndestination: kept\n"
        "penstock: { source: { defaults: { mode: upsert, primary_key: id } } }\n",
    )
    crm.users(1, 2, 3)
    assert crm.run()[0] == 0 and len(crm.ids()) == 3
    with psycopg.connect(crm.url, autocommit=True) as connection:
        connection.execute("UPDATE users SET balance = 2 WHERE id = 2")
    code, told = crm.run()
    assert (code, crm.ids()[3:]) == (0, [2]), told


def test_the_password_of_a_datasource_is_nowhere(crm: Crm) -> None:
    """L10."""
    secret = "s3cret-password"
    crm.write(".env.local", f"PG_URL=postgres://u:{secret}@127.0.0.1:1/x\nSINK={crm.sink}\n")
    code, told = crm.run("-vv")
    assert code == 4 and told["syncs"][0]["error"]["code"] == "source.unreachable"
    assert secret not in json.dumps(told)
    files = [p for p in crm.home.path.rglob("*") if p.is_file()]
    assert not [p for p in files if secret.encode() in p.read_bytes()]


@pytest.mark.network
def test_a_real_destination_on_the_node_cdk_takes_a_projects_rows(crm: Crm) -> None:
    package = crm.folder / "kept-destination"
    package.mkdir()
    npm = shutil.which("npm")
    assert npm is not None, "Node.js and npm are needed"
    (package / "package.json").write_text('{"name": "kept", "version": "1.0.0", "main": "main.js"}')
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (package / "main.js").write_text(NODE_DESTINATION)
    out = crm.folder / "out.jsonl"
    crm.write(
        "connections/node.yaml",
        f"package: {{ type: npm, dir: kept-destination }}\ncredentials: {{ file: '{out}' }}\n",
    )
    crm.write("syncs/node.yml", "model: users\ndestination: node\nstream: contacts\n")
    crm.users(*range(1, 51))
    code, told = crm.run("--select", "node")
    assert code == 0, told
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["row"]["id"] for line in kept) == list(range(1, 51))
    assert {line["name"] for line in kept} == {"contacts"}
    assert kept[0]["row"]["tags"] == ["a", None]

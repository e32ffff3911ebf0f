"""A destination of the SDK under the real ``syncmaven`` command line, from a Postgres model.

Only where it is asked for: the command line's packages take 440 MB.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(
        os.environ.get("PENSTOCK_REAL_SYNCMAVEN") != "1",
        reason="PENSTOCK_REAL_SYNCMAVEN=1 installs the real command line, 440 MB",
    ),
]

_TEN = "generate_series(1, 10) g"

DESTINATION = """
import json
from typing import TypedDict
from penstock.sdk import Connector, Halt, RateLimitError, StreamWriter, run

class Credentials(TypedDict):
    file: str

class Contact(TypedDict):
    id: int
    email: str

class Contacts(StreamWriter):
    name, row, batch_size = "contacts", Contact, 4
    refused = False
    def open(self):
        runs = (self.sync.store.get("runs") or 0) + 1
        self.sync.store.set("runs", runs)
        print("STORED", [*self.sync.store.entries()], self.sync.store.size())
    def write(self, rows):
        if not Contacts.refused:
            Contacts.refused = True
            raise RateLimitError("slow", retry_after=0.1)
        for row in rows:
            if row["email"] == "halt":
                raise Halt("the account is closed")
            if row["email"] == "bad":
                self.reject(row, "no such address")
        with open(self.sync.credentials["file"], "a") as file:
            file.writelines(json.dumps(row) + "\\n" for row in rows)

run(Connector(description="crm", credentials=Credentials, streams=[Contacts]))
"""


class Project:
    """A Syncmaven project with one sync."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder, self.cluster, self.sent = folder, cluster, folder / "sent.jsonl"
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("there is no npm")
        (folder / "package.json").write_text('{"private": true}')
        install = [npm, "install", "--no-audit", "--no-fund", "syncmaven@0.0.11"]
        subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=570)
        (folder / "crm.py").write_text(DESTINATION)
        command = f"{sys.executable} {folder / 'crm.py'}"
        connection = {
            "package": {"type": "npm", "dir": str(folder), "command": command},
            "credentials": {"file": str(self.sent)},
        }
        self._write("connections/crm.json", connection)
        self._write("syncs/s.json", {"model": "users", "destination": "crm"})

    def _write(self, name: str, content: object) -> None:
        path = self.folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    def sync(self, table: str) -> tuple[int, str]:
        url = f"postgres://penstock@{quote(self.cluster, safe='')}/postgres"
        query = f"select id, email from {table} order by id"
        self._write("models/users.json", {"datasource": url, "query": query})
        told = {"SYNCMAVEN_VERSION": "0.0.0", "SYNCMAVEN_TELEMETRY_DISABLED": "true"}
        command = [self.folder / "node_modules/.bin/syncmaven", "sync", "project"]
        done = subprocess.run(
            [*command, "--state", "state"],
            cwd=self.folder,
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout


def test_the_real_command_line_runs_a_destination_of_the_sdk(
    tmp_path: Path,
    postgres_cluster: str,
) -> None:
    with psycopg.connect(f"host={postgres_cluster} user=penstock dbname=postgres") as conn:
        email = "case when g = 7 then 'bad' else 'u' || g end"
        conn.execute(f"create table users as select g as id, {email} as email from {_TEN}")
        conn.execute(f"create table halts as select g as id, 'halt' as email from {_TEN}")
    project = Project(tmp_path, postgres_cluster)
    for number in (1, 2):
        code, told = project.sync("users")
        assert code == 0, told
        assert f"STORED [(('runs',), {number})] 1" in told
        for line in ("received: 10", "success: 9", "failed: 1", "no such address", "rate limited"):
            assert line in told
    rows = [json.loads(line) for line in project.sent.read_text().splitlines()]
    assert [row["id"] for row in rows] == [*range(1, 11)] * 2
    code, told = project.sync("halts")
    assert code == 1 and "the account is closed" in told
    assert len(project.sent.read_text().splitlines()) == 20

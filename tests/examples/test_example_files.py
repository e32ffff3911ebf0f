"""The files of ``examples/``: pipelines parse, the DAG compiles, and what needs only
this machine runs. Those with Postgres run in ``e2e/test_real_singer.py``."""

import ast
import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from penstock.api.verbs import RunKeywords
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.observer import NullObserver

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PIPELINES = sorted(
    p for p in EXAMPLES.rglob("*.yaml") if re.search(r"^pipeline:", p.read_text(), re.MULTILINE)
)


def values(text: str) -> dict[str, str]:
    """A value for each variable that has no default."""
    return {
        name: "https://a.example/x" if name.endswith("_URL") else "a"
        for name in re.findall(r"\$\{(\w+)\}", text)
    }


def test_the_folder_has_them() -> None:
    assert len(PIPELINES) >= 6
    page = (EXAMPLES / "README.md").read_text()
    linked = {*re.findall(r"\]\(([\w./-]+)\)", page)}
    assert all((EXAMPLES / link).exists() for link in linked)
    shown = {str(p.relative_to(EXAMPLES)) for p in PIPELINES} - {"compose/pipelines/faker.yaml"}
    assert shown <= linked


@pytest.mark.parametrize("path", PIPELINES, ids=lambda p: p.stem)
def test_a_pipeline_parses(path: Path) -> None:
    assert load_pipeline(path, env=values(path.read_text())).warnings == ()


def test_the_dag_compiles_and_calls_what_there_is() -> None:
    """Airflow itself is not installed here."""
    tree = ast.parse((EXAMPLES / "airflow" / "penstock_dag.py").read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    (run,) = [c for c in calls if ast.unparse(c.func) == "penstock.run"]
    assert {k.arg for k in run.keywords} <= {*RunKeywords.__annotations__}


def test_the_compose_file_builds_our_image_and_finds_its_pipelines() -> None:
    folder = EXAMPLES / "compose"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert (folder / services["penstock"]["build"] / "Dockerfile").exists()
    assert all((folder / v.partition(":")[0]).is_dir() for v in services["penstock"]["volumes"][:1])
    used = re.findall(r"\$\{(\w+)\}", (folder / "pipelines" / "faker.yaml").read_text())
    assert {*used} <= {*services["penstock"]["environment"]}


class Received(ThreadingHTTPServer):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.rows += json.loads(body)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def server() -> Iterator[Received]:
    with Received() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.mark.spark
def test_reverse_etl_sends_what_changed(
    tmp_path: Path, server: Received, shared_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    del shared_spark
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    lake = tmp_path / "lake" / "users"
    lake.mkdir(parents=True)

    def run(emails: list[str | None]) -> list[dict[str, Any]]:
        rows = pa.table({"id": [1, 2, 3], "email": pa.array(emails, pa.string())})
        pq.write_table(rows, lake / "users.parquet")
        server.rows.clear()
        url = f"http://127.0.0.1:{server.server_port}/contacts"
        pipeline = load_pipeline(
            EXAMPLES / "pipelines" / "reverse-etl.yaml", env={"CONTACTS_URL": url}
        )
        report = run_pipeline(pipeline, Home(tmp_path / "home"), observer=NullObserver())
        assert report.status == "succeeded", report.error
        return sorted(server.rows, key=lambda row: row["id"])

    assert run(["a@x.org", None, "c@x.org"]) == [
        {"id": 1, "email": "a@x.org"}, {"id": 3, "email": "c@x.org"}
    ]  # fmt: skip
    assert run(["a@x.org", "b@x.org", "new@x.org"]) == [
        {"id": 2, "email": "b@x.org"}, {"id": 3, "email": "new@x.org"}
    ]  # fmt: skip

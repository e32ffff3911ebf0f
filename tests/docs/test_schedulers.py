"""The blocks of ``schedule.md`` and the example that other programs run: a real Airflow and a real
Dagster, in an environment into which a wheel of Penstock is installed."""

import subprocess

import pytest
from doc_blocks import ROOT, blocks
from doc_follow import SHOP, Folder

from clean_env import environment_with_penstock

pytestmark = [pytest.mark.spark, pytest.mark.network, pytest.mark.slow]

PACKAGES = ("apache-airflow-core>=3.1,<4", "dagster>=1.12,<2")
PLAYS_DAGS = """
import sys
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb

def found(folder):
    bag = DagBag(folder)
    assert not bag.import_errors, bag.import_errors
    assert not bag.captured_warnings, bag.captured_warnings
    (dag,) = bag.dags.values()
    (task,) = dag.tasks
    return dag, task

page, _ = found(sys.argv[1])
example, task = found(sys.argv[2])
print(example.dag_id, task.python_callable())
initdb()
print("--- the page's")
page.test()
"""
MATERIALIZES = """
import sys
import dagster

names = {}
exec(open(sys.argv[1]).read(), names)
done = dagster.materialize([names["shop"]])
assert done.success
(made,) = done.asset_materializations_for_node("shop")
print({name: value.value for name, value in made.metadata.items()})
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment_with_penstock(tmp_path_factory.mktemp("schedulers"), *PACKAGES)


@pytest.fixture
def srv(equipped: Folder) -> Folder:
    equipped.file("srv/shop.yaml", SHOP.replace("./source", f"{equipped.path}/source"))
    equipped.file("srv/.env", "UNUSED=1\n")
    equipped.replaced = {"/srv/penstock": f"{equipped.path}/srv"}
    return equipped


def said(srv: Folder, python: str, program: str, *arguments: str) -> str:
    environ = srv.environment() | {
        "AIRFLOW_HOME": f"{srv.path}/airflow",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": f"{srv.path}/dags",
        "DAGSTER_HOME": "",
    }
    done = subprocess.run(
        [python, "-u", "-c", program, *arguments],
        cwd=srv.path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_airflow(srv: Folder, python: str) -> None:
    """It finds the DAG of the page and that of the example without a warning, and the example's
    task runs. It plays the page's, and what the run does is in the task's log."""
    (page,) = [b.text for b in blocks("python", page="schedule.md") if "airflow" in b.text]
    example = (ROOT / "examples" / "airflow" / "penstock_dag.py").read_text()
    folders = [
        str(srv.file(f"{name}/shop.py", srv.here(text)).parent)
        for name, text in {"dags": page, "example": example}.items()
    ]
    ran, mark, log = said(srv, python, PLAYS_DAGS, *folders).partition("--- the page's")
    assert mark and "shop {'status': 'succeeded', 'rows': 5}" in ran, ran[-3000:]
    assert "extract  lane 0: 1 stream" in log and "[penstock]" in log, log[-3000:]
    assert "'rows': 5" in log, log[-3000:]


def test_dagster(srv: Folder, python: str) -> None:
    (page,) = [b.text for b in blocks("python", page="schedule.md") if "dagster" in b.text]
    file = srv.file("assets.py", srv.here(page))
    assert "{'users': 5}" in said(srv, python, MATERIALIZES, str(file))

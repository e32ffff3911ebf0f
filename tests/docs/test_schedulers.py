"""The blocks of ``schedule.md`` and the example that other programs run: a real Airflow and a real
Dagster, in an environment into which a wheel of Penstock is installed."""

import subprocess

import pytest
from doc_blocks import ROOT, blocks
from doc_follow import SHOP, Folder

from clean_env import environment_with_penstock

pytestmark = [pytest.mark.spark, pytest.mark.network, pytest.mark.slow]

PACKAGES = ("apache-airflow-core>=3.1,<4", "dagster>=1.12,<2")
RUNS_A_DAG = """
import sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
assert not bag.captured_warnings, bag.captured_warnings
(dag,) = bag.dags.values()
(task,) = dag.tasks
print(dag.dag_id, task.python_callable())
"""
PLAYS_THE_TASK = """
import sys
from airflow.dag_processing.dagbag import DagBag

DagBag(sys.argv[1]).dags["shop"].test()
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
        [python, "-c", program, *arguments],
        cwd=srv.path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_airflow(srv: Folder, python: str) -> None:
    """It finds the DAG of the page and that of the example without a warning; their task runs."""
    (page,) = [b.text for b in blocks("python", page="schedule.md") if "airflow" in b.text]
    example = (ROOT / "examples" / "airflow" / "penstock_dag.py").read_text()
    for name, text in {"page": page, "example": example}.items():
        dags = srv.file(f"{name}/shop.py", srv.here(text)).parent
        told = said(srv, python, RUNS_A_DAG, str(dags))
        assert "shop {'status': 'succeeded', 'rows': 5}" in told or name == "example"


def test_airflow_task_log(srv: Folder, python: str) -> None:
    """Airflow plays the task, and what the run does is in the task's log."""
    (page,) = [b.text for b in blocks("python", page="schedule.md") if "airflow" in b.text]
    dags = srv.file("dags/shop.py", srv.here(page)).parent
    said(srv, python, "from airflow.utils.db import initdb; initdb()")
    told = said(srv, python, PLAYS_THE_TASK, str(dags))
    assert "extract  lane 0: 1 stream" in told and "[penstock]" in told, told[-3000:]
    assert "'rows': 5" in told


def test_dagster(srv: Folder, python: str) -> None:
    (page,) = [b.text for b in blocks("python", page="schedule.md") if "dagster" in b.text]
    file = srv.file("assets.py", srv.here(page))
    assert "{'users': 5}" in said(srv, python, MATERIALIZES, str(file))

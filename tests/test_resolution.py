"""Penstock and what people have beside it resolve to one environment, as the package index is
today. Which does not, and for which package of which version, stands in ``docs/install.md``.

Only resolved, by ``uv pip compile``; what decides values runs on its bounds in ``test_locks.py``,
the store on the older SQLAlchemy in ``store/test_sqlalchemy_versions.py``.
"""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
from uv import find_uv_bin

from clean_env import ROOT

TOGETHER = {  # the packages of a line are in one environment
    "airflow-2": ("apache-airflow==2.11.*",),
    "airflow-3": ("apache-airflow>=3,<4",),
    "pandas-2": ("dagster>=1.13", "dbt-duckdb>=1.10", "dlt>=1.30", "pandas>=2.2,<3"),
    "pandas-3": ("meltano>=4.4", "pandas>=3,<4"),
}
PYAIRBYTE = "airbyte>=0.36"
DECISIVE = "duckdb"  # what no version of Penstock can have as PyAirbyte pins it: it loses digits
SECONDS = 150  # the registry is not always quick


def resolved(folder: Path, *others: str) -> subprocess.CompletedProcess[str]:
    (folder / "asked.in").write_text("\n".join(others))
    words = ["--python-version", "3.11", "--no-header", "--no-annotate", str(folder / "asked.in")]
    return subprocess.run(
        [find_uv_bin(), "pip", "compile", "--quiet", *words],
        capture_output=True, text=True, cwd=folder, timeout=SECONDS,
    )  # fmt: skip


Answers = dict[str, Future[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """All at the same time: each waits for the registry, and hardly for a processor."""
    bound = next(r for r in metadata.requires("penstock") or () if r.startswith(DECISIVE))
    asked = {name: (str(ROOT), *others) for name, others in TOGETHER.items()}
    asked["pyairbyte"] = (bound, PYAIRBYTE)
    with ThreadPoolExecutor(len(asked)) as pool:
        yield {
            name: pool.submit(resolved, tmp_path_factory.mktemp(name), *lines)
            for name, lines in asked.items()
        }


@pytest.mark.network
@pytest.mark.dear
@pytest.mark.parametrize("name", TOGETHER)
def test_penstock_resolves_beside(name: str, answers: Answers) -> None:
    done = answers[name].result()
    assert done.returncode == 0, done.stderr[-4000:]
    found = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", done.stdout, re.MULTILINE))
    for other in TOGETHER[name]:
        assert re.split(r"[=<>]", other)[0] in found
    assert {"pyspark", "pyarrow", "duckdb", "deltalake", "sqlalchemy"} <= found.keys()


@pytest.mark.network
@pytest.mark.dear
def test_pyairbyte_needs_an_environment_of_its_own(answers: Answers) -> None:
    """Fails on the day on which PyAirbyte permits the DuckDB that Penstock needs: then look at its
    other bounds, and at the page."""
    done = answers["pyairbyte"].result()
    assert done.returncode == 1, done.stdout
    assert "airbyte" in done.stderr and "duckdb==1.4.3" in done.stderr, done.stderr[-4000:]


def test_what_people_have_beside_it_is_on_the_page() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    for name in ("Airflow 2.11", "Airflow 3", "Dagster", "dbt-duckdb", "dlt", "Meltano", "pandas"):
        assert name in page
    assert "PyAirbyte" in page and "duckdb==1.4.3" in page

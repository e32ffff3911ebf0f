"""The example notebook, executed as Jupyter does: answers, reports and progress are its outputs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

import warm_spark

if TYPE_CHECKING:
    from conftest import Api

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "penstock.ipynb"


@pytest.mark.spark
def test_the_notebook_runs_and_shows_its_reports(api: "Api") -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    told = {"SOURCE": api.source, "STREAM": "s0", "PENSTOCK_HOME": str(api.home)}
    client = NotebookClient(book, timeout=300, kernel_name="python3")
    client.execute(cwd=str(api.folder), env=warm_spark.as_environment(**told))
    outputs: list[list[Any]] = [c.outputs for c in book.cells if c.cell_type == "code"]
    shown = [[o.get("data", {}) for o in each] for each in outputs]
    assert shown[1][-1]["text/plain"] == "['s0', 's1']"
    assert "updated_at" in shown[2][-1]["text/html"]  # a DataFrame of pandas
    assert "<code>" in shown[2][0]["text/html"]  # progress, in one line
    assert "<td>copied</td><td>complete</td><td>100</td>" in shown[3][-1]["text/html"]
    assert "nothing" in shown[4][-1]["text/plain"]

"""The tutorial (``docs/first-pipeline.md``), followed from its first line to its last in an empty
folder: every block of it runs, in its order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import warm_spark

PAGE = Path(__file__).parents[2] / "docs" / "first-pipeline.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.network
def test_every_block_of_the_tutorial_runs(tmp_path: Path, connector_environments: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connectors").symlink_to(connector_environments)
    environ = warm_spark.as_environment(
        PENSTOCK_HOME=str(tmp_path / "home"),
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    )
    blocks = BLOCK.findall(PAGE.read_text())
    assert [language for language, _ in blocks].count("sh") >= 3
    said = ""
    for language, text in blocks:
        if language == "yaml":
            (tmp_path / "people.yaml").write_text(text)
            text = "penstock plan people.yaml && penstock run people.yaml"
        command = [sys.executable, "-c", text] if language == "python" else ["bash", "-ec", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, (text, done.stdout[-2000:], done.stderr[-3000:])
        said += done.stdout
    assert "1000" in said  # the rows of the table that the page reads

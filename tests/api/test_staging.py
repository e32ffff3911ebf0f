"""Folders in which rows wait: a later call removes those of processes that have ended."""

import subprocess
import sys
from pathlib import Path

from penstock.api.staging import staging_folder
from penstock.config.home import Home
from penstock.runtimes.owner import this_owner


def test_folders_of_a_killed_program_are_removed_and_those_of_a_living_one_stay(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    code = (
        "import os, signal, sys; from penstock.api.staging import staging_folder;"
        "from penstock.config.home import Home; from penstock.runtimes.owner import this_owner;"
        "made = staging_folder(Home(sys.argv[1]), this_owner());"
        "(made.path / 'rows.parquet').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(home.path)], timeout=60)
    [left] = (home.path / "frames").iterdir()
    mine = staging_folder(home, this_owner())
    other = staging_folder(home, this_owner())
    assert not left.exists() and mine.path.exists() and other.path.exists()
    assert mine.path.stat().st_mode & 0o777 == 0o700 and mine.lasting == home.path

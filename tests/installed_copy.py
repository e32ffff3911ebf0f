"""``penstock`` of a copy of the package, into which a test puts a folder more."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock


class InstalledCopy:
    """``tree``: the copy of the package. A call runs the command line in ``folder``; returns its
    JSON, or what it printed for people."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "site" / "penstock"
        package = Path(penstock.__file__).parent
        shutil.copytree(package, self.tree, ignore=shutil.ignore_patterns("__pycache__"))

    def __call__(self, *words: str, code: int = 0) -> Any:
        kept = {k: v for k, v in os.environ.items() if k in ("CI", "PATH", "LANG", "LC_ALL")}
        paths = {"HOME": str(self.folder), "PENSTOCK_HOME": str(self.folder / "home")}
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            env={**kept, **paths, "PYTHONPATH": str(self.folder / "site")},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

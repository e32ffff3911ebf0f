"""Finds the private folders (``runtimes.private_files``) that a process holds."""

import os
from pathlib import Path


def held_by(pid: int) -> list[Path]:
    """The folders that the process has open, and so locked."""
    found: set[Path] = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = Path(os.path.realpath(f"/proc/{pid}/fd/{fd}"))
        if path.name.startswith("penstock-held-"):
            found.add(path)
    return sorted(found)

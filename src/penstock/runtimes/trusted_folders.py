"""Checks that only this user can write to a folder from which native code is loaded.

Neighbours: ``runtimes.wasm.compile_cache`` keeps compiled components in such a folder,
``spark.class_archive`` Java's classes.
"""

import os
import stat
from pathlib import Path

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def unsafe(folder: Path) -> str | None:
    """Returns the reason why native code must not be loaded from the folder; None where it may.
    Creates a missing folder with mode 0700."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder.resolve(strict=True)
        found = path.stat()
        if found.st_uid != os.geteuid():
            return f"{path} belongs to another user"
        if found.st_mode & OTHERS_WRITE:
            return f"{path} can be written by other users"
        for parent in path.parents:
            above = parent.stat()
            if above.st_uid not in (0, os.geteuid()):
                return f"{parent} belongs to another user"
            if above.st_mode & OTHERS_WRITE and not above.st_mode & stat.S_ISVTX:
                return f"{parent} can be written by other users"
    except OSError as e:
        return f"{folder}: {e.strerror or e}"
    return None

"""Keeps what tests take minutes to build (components, their machine code, what cargo compiled) in
the user's cache, so that all checkouts of a machine share it. ``PENSTOCK_TEST_CACHE`` names another
folder.

A file's name says what it was made from, so that it is never out of date; one that nobody asked for
in a month is removed.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs

KEPT = Path(os.environ.get("PENSTOCK_TEST_CACHE") or platformdirs.user_cache_path("penstock-tests"))
UNUSED_SECONDS = 30 * 86_400.0


@contextlib.contextmanager
def building(place: Path) -> Iterator[bool]:
    """Whether ``place`` is still to be made; one process of this machine is told so at a time."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not place.exists():
        with place.with_name(f"{place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = not place.exists()
            if missing:
                _drop_unused(place.parent)
            yield missing
    else:
        yield False
    os.utime(place)


def _drop_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process was faster
            if time.time() - path.stat().st_mtime > UNUSED_SECONDS and path.is_file():
                path.unlink()

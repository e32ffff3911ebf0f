"""Makes the folders that hold rows on their way between a program and a run.

A folder names the process that owns it, and a later process removes it once that one has ended. It
lies in Penstock's home, which driver and workers share. Not here: what lies in a folder
(``writing``, ``spark_source``).
"""

import shutil
from contextlib import suppress
from uuid import uuid4

from penstock.config.home import Home
from penstock.runtimes.owner import is_dead

FRAMES = "frames"
_OWNER = "owner"


def staging_folder(outer: Home, owner: str) -> Home:
    """Makes a folder of ``owner`` (``runtimes.owner``), with the parts of a home. Removes folders
    of owners that have ended."""
    for left in (outer.path / FRAMES).glob(f"*/{_OWNER}"):
        with suppress(OSError):  # another process removes it
            if is_dead(left.read_text()):
                shutil.rmtree(left.parent, ignore_errors=True)
    home = outer.within(FRAMES, uuid4().hex)
    (home.path / _OWNER).write_text(owner)
    return home

"""Names the folder of one session's temporary files, and removes those that killed processes left.

The folder is next to the session's log and holds Spark's blocks, Java's temporary files and jars in
transit. It is removed with the session. A killed process leaves it; a later session whose log is in
a sibling folder (``runs/RUN``, mostly) removes it. Not here: the folder of a JVM that stays for
other runs, which belongs to its keeper (``keeper``)."""

import os
from pathlib import Path

from penstock.runtimes.owner import is_dead, this_owner
from penstock.spark.sockets import remove_scratch

_PREFIX = "spark-"
_SEARCHED = 200  # sibling folders, of which there may be one for each run there ever was


def session_scratch(folder: Path) -> Path:
    """Returns the path for this process's session whose log is in ``folder``."""
    return folder / f"{_PREFIX}{this_owner()}"


def remove_left(folder: Path) -> None:
    """Removes what dead processes left in the newest siblings of ``folder``, by their names, and in
    ``folder``. Never raises."""
    try:
        siblings = sorted((e.path for e in os.scandir(folder.parent) if e.is_dir()), reverse=True)
    except OSError:
        return
    for sibling in siblings[:_SEARCHED]:
        try:
            names = [n for n in os.listdir(sibling) if n.startswith(_PREFIX)]
        except OSError:
            continue
        for name in names:
            if is_dead(name.removeprefix(_PREFIX)):
                remove_scratch(Path(sibling, name))

"""Links the parts of a load into the folder of their table, so that its rows are written once.

Imports no Spark, since the tasks that merge use it. Not here: which parts match the table's layout
(``direct_parts``), how a load becomes visible (``parquet``, ``delta``). Neighbour:
``tables.folder_access`` gives the files the access of other files."""

import os
from contextlib import suppress
from pathlib import Path

from penstock.tables import folder_access
from penstock.tables.contract import TableLoad


def linked(load: TableLoad, folder: Path, stem: str = "") -> list[Path] | None:
    """Gives each part's file a second name in ``folder`` (``stem`` and a number), with the access
    and the modification time of a new file. The log keeps its own names, so that the load can be
    repeated. Returns None, and leaves nothing, if the file system or the parts' owner does not
    allow it."""
    files = [folder / f"{stem}{index:05d}.parquet" for index in range(len(load.parts))]
    try:
        access = folder_access.of_new_file(folder / f".{stem}permissions")
        for part, file in zip(load.parts, files, strict=True):
            os.link(part, file)
            access.give(file)
            os.utime(file)  # cleanup of orphaned files goes by their age
    except OSError:
        for file in files:
            with suppress(FileNotFoundError):
                file.unlink()
        return None
    return files

"""Defines the place of a pipeline: the folder at which its relative paths start.

Links are not resolved: a checkout that is reached by a link keeps its place when the link moves.
Not here: what the paths of a pipeline become (``config.relative_paths``), the place that is stored
beside the state (``store.remembered.StoredPlace``).
"""

import os

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Says where a pipeline's relative paths start. ``folder``: an absolute path, in which links
    are not resolved. ``relative``: whether any path of it is relative; ``reads``: whether one of a
    query or of a connector's configuration is, whose files nothing else tells apart. ``lake``: the
    absolute path of its tables, where that is local; ``written``: the same as the user wrote it.
    ``before``: the absolute path that a file's ``written`` meant when relative paths started at the
    folder in which Penstock was started; None: the same. ``ran``: the folder in which its
    connectors ran then, where that is another; ``moved``: their sections. ``from_file``: the paths
    are those of a file; ``project``: they are those of a project of several."""

    folder: str
    relative: bool = False
    reads: bool = False
    lake: str | None = None
    written: str | None = None
    before: str | None = None
    ran: str | None = None
    moved: tuple[str, ...] = ()
    from_file: bool = False
    project: bool = False


def working_folder() -> str:
    """Returns the folder in which Penstock runs, by the links through which the shell came there
    (``PWD``)."""
    named = os.environ.get("PWD", "")
    try:
        if os.path.isabs(named) and os.path.samefile(named, os.curdir):
            return absolute(named, os.sep)
    except OSError:
        pass
    return os.getcwd()


def same_folder(one: str, other: str) -> bool:
    """Whether two paths name one folder: by their text, or since they lead to it now."""
    if one == other:
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def absolute(path: str, start: str) -> str:
    """Returns ``path`` as an absolute one that starts at ``start``. Links are not resolved, but for
    one before ``..``, which leads the kernel to the folder above its target."""
    path = os.path.join(start, os.path.expanduser(path))
    found = "/"
    for step in path.split("/"):
        if step == ".." and os.path.islink(found):
            found = os.path.realpath(found)  # the kernel goes up from where the link leads
        found = os.path.normpath(os.path.join(found, step))
    return found


def written_from(path: str, start: str) -> str:
    """Returns the absolute ``path`` as it is written relative to ``start``, or as it is where links
    would lead the relative one elsewhere."""
    relative = os.path.relpath(path, start)
    return relative if absolute(relative, start) == path else path

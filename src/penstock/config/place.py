"""Defines the place of a pipeline: the folder at which its relative paths start.

Links are not resolved: a checkout that is reached by a link keeps its place when the link moves.
Not here: how the paths of a pipeline are resolved (``config.relative_paths``), the place that is
stored with the state (``store.remembered.StoredPlace``).
"""

import os

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pipeline's relative paths start. ``folder``: an absolute path, in which links are not
    resolved. ``relative``: whether any of its paths is relative; ``reads``: whether a path in a
    query or in a connector's configuration is, whose files only the folder distinguishes. ``lake``:
    the absolute path of its tables, where that is local; ``written``: the same as the user wrote
    it. ``before``: the absolute path that a file's ``written`` meant when relative paths started at
    the folder in which Penstock was started; None: the same. ``ran``: the folder in which its
    connectors ran then, if different; ``moved``: their sections. ``from_file``: the paths are those
    of a file; ``project``: they are those of a project of several."""

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
    """Returns the folder in which Penstock runs, with the links of the shell's path (``PWD``)."""
    named = os.environ.get("PWD", "")
    try:
        if os.path.isabs(named) and os.path.samefile(named, os.curdir):
            return absolute(named, os.sep)
    except OSError:
        pass
    return os.getcwd()


def same_folder(one: str, other: str) -> bool:
    """Returns whether two paths name one folder: by their text, or by where they lead now."""
    if one == other:
        return True
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def absolute(path: str, start: str) -> str:
    """Returns ``path`` as an absolute path from ``start``. Resolves only a link before ``..``,
    which the kernel follows to the folder above its target."""
    path = os.path.join(start, os.path.expanduser(path))
    found = "/"
    for step in path.split("/"):
        if step == ".." and os.path.islink(found):
            found = os.path.realpath(found)  # the kernel goes up from where the link leads
        found = os.path.normpath(os.path.join(found, step))
    return found


def written_from(path: str, start: str) -> str:
    """Returns the absolute ``path`` relative to ``start``, or unchanged where links would lead the
    relative path elsewhere."""
    relative = os.path.relpath(path, start)
    return relative if absolute(relative, start) == path else path

"""Makes the private folder of the Unix sockets of one Spark on this machine, and removes it.

Spark, its Python workers and PySpark in the driver communicate over sockets in it, in place of TCP
ports that any user of the machine may connect to: the daemon of the workers forks for a client
before it requests the secret. Over a Unix socket Spark requests no secret, so the folder's mode
(0700) is the protection. A socket's path is at most 107 bytes long, and Spark accepts a folder's
path up to :data:`MOST_BYTES`. If the session's scratch folder has a longer path, the folder is in
the temporary directory, and a link in the scratch folder names it, so that removing the scratch
folder (:func:`remove_scratch`) removes it too. Imports the standard library only, because the
keeper does. Not here: the scratch folder (``scratch``), the settings (``session``)."""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
MOST_BYTES = 59
_LINK = "sockets-"
_PREFIX = "penstock-"


def with_sockets(conf: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Returns ``conf`` with the folder of the sockets if it requests sockets and names no folder;
    without sockets (Spark then uses TCP ports) if no folder has a short enough path. ``scratch``:
    the session's, which exists and is private."""
    if conf.get(ENABLED) != "true" or FOLDER in conf:
        return dict(conf)
    folder = _folder(scratch)
    return {**conf, **({ENABLED: "false"} if folder is None else {FOLDER: str(folder)})}


def remove_scratch(scratch: Path) -> None:
    """Removes a session's scratch folder and the folder of its sockets. Never raises."""
    with suppress(OSError):
        for name in os.listdir(scratch):
            if name.startswith(_LINK):
                _remove_linked(scratch / name)
    shutil.rmtree(scratch, ignore_errors=True)


def _folder(scratch: Path) -> Path | None:
    if len(os.fsencode(scratch)) <= MOST_BYTES and _is_private(scratch):
        return scratch
    for base in dict.fromkeys((tempfile.gettempdir(), "/tmp")):
        if len(os.fsencode(base)) + len(_PREFIX) + 9 > MOST_BYTES:
            continue
        with suppress(OSError):
            made = tempfile.mkdtemp(prefix=_PREFIX, dir=base)  # 0700, whatever the umask
            try:
                os.symlink(made, scratch / f"{_LINK}{Path(made).name}")
            except OSError:
                os.rmdir(made)
                raise
            return Path(made)
    return None


def _remove_linked(link: Path) -> None:
    with suppress(OSError):
        made = Path(os.readlink(link))
        link.unlink()
        if made.name.startswith(_PREFIX) and _is_private(made):
            shutil.rmtree(made, ignore_errors=True)


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    mode = stat.S_IMODE(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not mode & 0o077

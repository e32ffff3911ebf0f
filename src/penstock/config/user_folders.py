"""Gives this process a home and a cache folder below Penstock's home, where the user has no usable
one: a service account, a container's user without an entry in the password database, a read-only
home.

Libraries, uv, npm, Java and connectors find their folders by ``HOME`` and ``XDG_CACHE_HOME``, which
are set here once, before anything reads them; usable folders of the user stay unchanged. Not here:
Penstock's home itself (``home``), what Java requests from the system (``spark.java_user``).
"""

import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

USER, CACHE = "user", "cache"  # folders in Penstock's home
_NPM_CACHE = "npm_config_cache"


def provide(home: Path, environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets ``HOME`` where the user has no home folder. If it exists but cannot be written, only the
    caches go below ``home``: programs read credentials and settings in the user's. ``home``:
    Penstock's. Never raises: an unwritable ``home`` is reported by its own error."""
    found = users_home(environ)
    if found is None:
        found = home / USER
        with suppress(OSError):
            found.mkdir(mode=0o700, parents=True, exist_ok=True)
            environ["HOME"] = str(found)
    caches = Path(environ.get("XDG_CACHE_HOME") or found / ".cache")
    if not may_write(caches / "penstock"):
        environ["XDG_CACHE_HOME"] = str(home / CACHE)
    if not may_write(found / ".npm"):
        environ.setdefault(_NPM_CACHE, str(home / CACHE / "npm"))


def users_home(environ: MutableMapping[str, str] = os.environ) -> Path | None:
    """Returns the user's home folder; None where it is missing, or is the root folder, which
    container engines set for an unknown user."""
    named = environ.get("HOME") or passwd_home()
    if not named or not os.path.isdir(named):
        return None
    return None if os.path.realpath(named) == "/" and os.geteuid() != 0 else Path(named)


def passwd_home() -> str | None:
    """Returns the home folder in the user's entry of the password database; None: no entry."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return None


def may_write(path: Path) -> bool:
    """Returns whether this user may write in a folder, or create it in the nearest existing one."""
    try:
        nearest = next(p for p in (path, *path.parents) if p.exists())
    except OSError:
        return False
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)

"""Names the command that installs an additional package for Penstock, for hints.

The command installs into the Python that runs Penstock, by the uv that comes with it, since
environments of ``uv tool``, ``pipx`` and of a checkout have no pip. It names the packages of an
extra: the package ``penstock`` on the public index is somebody else's. Not here: whether a package
is needed (``removable_packages``, and the modules that import one).
"""

import re
import shlex
import sys

_PENSTOCK = "penstock"
_EXTRA = re.compile(r"(.*?)\s*;\s*extra\s*==\s*['\"]([\w-]+)['\"]\s*")


def install(*requirements: str) -> str:
    """Returns the command that installs these requirements."""
    words = " ".join(map(shlex.quote, requirements))
    python = shlex.quote(sys.executable)
    return f"{python} -m uv pip install --python {python} {words}"


def install_extra(extra: str) -> str:
    """Returns the command that installs one of Penstock's extras."""
    from importlib import metadata  # only where something is missing

    stated = map(_EXTRA.fullmatch, metadata.requires(_PENSTOCK) or ())
    return install(*(found[1] for found in stated if found and found[2] == extra))

"""Names the command that installs an additional package for Penstock, for hints.

A checkout is on no index, and its environment has no pip: there uv installs the missing package,
and ``./penstock`` keeps it. Not here: whether a package is needed (``removable_packages``, and the
modules that import one).
"""

import re
import shlex
import sys

_PENSTOCK = "penstock"
_EXTRA = re.compile(r"(.*?)\s*;\s*extra\s*==\s*['\"]([\w-]+)['\"]\s*")


def install(*requirements: str) -> str:
    """Returns the command that installs these requirements."""
    words = " ".join(map(shlex.quote, requirements))
    if not _is_checkout():
        return f"pip install {words}"
    python = shlex.quote(sys.executable)
    return f"{python} -m uv pip install --python {python} {words}"


def install_extra(extra: str) -> str:
    """Returns the command that installs one of Penstock's extras."""
    from importlib import metadata  # only where something is missing

    if not _is_checkout():
        return install(f"{_PENSTOCK}[{extra}]")
    stated = map(_EXTRA.fullmatch, metadata.requires(_PENSTOCK) or ())
    return install(*(found[1] for found in stated if found and found[2] == extra))


def _is_checkout() -> bool:
    """Returns whether Penstock was not installed from a wheel (PEP 610)."""
    from importlib import metadata

    try:
        origin = metadata.distribution(_PENSTOCK).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return True
    return origin is not None and '"dir_info"' in origin

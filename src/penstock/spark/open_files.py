"""Refuses to start Java if this process may have too few files open, before Java fails from that
with the stack trace of some other error.

Not here: descriptors that run out later (``errors.not_ours``). ``session`` and ``error_text`` call
it."""

import resource

from penstock.errors import ConfigError

LEAST_FILES = 384
"""Java with Spark has some 350 files open, and raises its soft limit to the hard one."""


def refuse_too_few() -> None:
    """Raises ``ConfigError`` (``config.open_files``) if the hard limit of file descriptors is below
    :data:`LEAST_FILES`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_FILES:
        raise too_few(hard)


def too_few(allowed: int) -> ConfigError:
    """Makes the error for a process that may have ``allowed`` files open, which are too few."""
    return ConfigError(
        f"too few file descriptors: this process may have {allowed} files open at once, and Spark "
        f"needs {LEAST_FILES} and more",
        code="config.open_files",
        hint="allow more (`ulimit -n 4096` where this command starts, LimitNOFILE= of its systemd "
        "unit, --ulimit of its container), then run again",
    )

"""Builds the engine's command line that creates a container: the common options, and its
restrictions.

Secrets are in files (``mounted_files``), never on a command line. Not here: which restrictions can
be enforced (``restrictions``), running the command (``runtime``).
"""

from collections.abc import Mapping, Sequence

from penstock.runtimes.container.egress import variables
from penstock.runtimes.container.engine import Engine
from penstock.runtimes.container.mounted_files import MountedFiles
from penstock.runtimes.container.orphans import named
from penstock.runtimes.container.restrictions import ContainerRestrictions
from penstock.runtimes.contract import Image

_SHELL = "/bin/sh"
_FIXED = (
    "-i",
    "--init",
    "--pull=never",  # a pull is a separate step, with its own timeout
    "--log-driver=none",  # else the engine writes all of stdout to its disk
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)


# podman sets this host name without an option
_HOST = ["--add-host=host.docker.internal:host-gateway"]


def created(
    engine: Engine,
    name: str,
    image: Image,
    arguments: Sequence[str],
    files: MountedFiles,
    restrictions: ContainerRestrictions,
    env: Mapping[str, str],
    *,
    feed: bool,
) -> list[str]:
    """Returns the words after the engine's name. ``env``: settings that are not secret. Needs an
    image that starts a program."""
    host = [] if engine.kind == "podman" or restrictions.no_network or restrictions.reach else _HOST
    words = ["create", *_FIXED, *host, *named(name), *restrictions.options(), *files.mounts()]
    given = {**env, **(variables() if restrictions.reach else {})}
    words += [w for k, v in given.items() for w in ("--env", f"{k}={v}")]
    command = program(image, arguments)
    script = files.script(feed=feed)
    if script is not None:
        return [*words, "--entrypoint", _SHELL, image.id, "-c", script, "sh", *command]
    if image.entrypoint:
        return [*words, image.id, *command[len(image.entrypoint) :]]
    return [*words, image.id, *command]


def program(image: Image, arguments: Sequence[str]) -> list[str]:
    """Returns the program and arguments of a container: ``arguments`` replace the image's own."""
    return [*image.entrypoint, *(arguments or image.command)]

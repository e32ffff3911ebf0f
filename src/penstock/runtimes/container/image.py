"""Pulls an image if it is missing, and reads what it starts.

Not here: its containers (``runtime``), its reference (``connectors.reference``).
"""

import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.errors import ConnectorError
from penstock.runtimes.container.engine import Engine, environment, last_output, refusal
from penstock.runtimes.container.orphans import named, new_name
from penstock.runtimes.contract import Image, PullPolicy

PULL_BOUND = 3600.0
"""Seconds that a pull may take."""
_COPY_BOUND = 60.0
_SHELL = "/bin/sh"


def known_image(
    engine: Engine,
    reference: str,
    pull: PullPolicy = "missing",
    progress: Callable[[str], None] | None = None,
) -> Image:
    """Returns the image that ``reference`` names, in its current version on this machine. Pulls it
    first according to ``pull``. Raises ``ConnectorError`` (``connector.image_missing``,
    ``connector.image``)."""
    found = None if pull == "always" else _inspected(engine, reference)
    if found is None:
        if pull == "never":
            raise ConnectorError(
                f"the image {reference} is not on this machine",
                code="connector.image_missing",
                hint=f"`{engine.kind} pull {reference}`, or allow it with container.pull: missing",
            )
        _pull(engine, reference, progress)
        found = _inspected(engine, reference)
        if found is None:
            raise refusal(f"the image {reference} was pulled and is not there")
    return _described(engine, reference, found)


def here(engine: Engine, image: Image, pull: PullPolicy) -> Image:
    """Returns the same image on this host, as another host may have found it: by its id, else by
    its digest or reference. Raises what :func:`known_image` does."""
    if _inspected(engine, image.id) is not None:
        return image
    return known_image(engine, image.digest or image.reference, pull)


def _inspected(engine: Engine, reference: str) -> dict[str, Any] | None:
    done = engine.call(["image", "inspect", reference])
    if done.returncode:
        words = last_output(done).lower()
        if "no such image" in words or "not known" in words or "not found" in words:
            return None
        raise refusal(f"the image {reference} cannot be inspected: {last_output(done)}")
    return cast(dict[str, Any], json.loads(done.stdout)[0])


def _pull(engine: Engine, reference: str, progress: Callable[[str], None] | None) -> None:
    if progress is not None:
        progress(f"pulling the image {reference}")
    done = engine.call(["pull", "-q", reference], PULL_BOUND)
    if done.returncode:
        raise ConnectorError(
            f"the image {reference} is not here and cannot be pulled: {last_output(done)}",
            code="connector.image_missing",
            hint=f"check its name and tag, and that this machine may pull it: `{engine.kind} pull "
            f"{reference}`",
        )


def _described(engine: Engine, reference: str, found: dict[str, Any]) -> Image:
    config = cast(dict[str, Any], found.get("Config") or {})
    if str(found.get("Os") or "linux") != "linux":
        raise ConnectorError(
            f"the image {reference} is for {found['Os']}, not for Linux",
            code="connector.image",
            hint="take one for Linux",
        )
    digests = cast(list[str], found.get("RepoDigests") or [])
    user, shell = _looked_inside(engine, str(found["Id"]), str(config.get("User") or "0"))
    return Image(
        reference=reference,
        id=str(found["Id"]),
        digest=digests[0] if digests else None,
        entrypoint=_words(config.get("Entrypoint")),
        command=_words(config.get("Cmd")),
        user=user,
        shell=shell,
    )


def _words(value: Any) -> tuple[str, ...]:
    """Converts an entry point to words; podman gives one of one word as text."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(map(str, cast(Sequence[Any], value or ())))


def _looked_inside(engine: Engine, image: str, user: str) -> tuple[int | None, bool]:
    """Returns the number of the image's user, if known, and whether the image has a shell; reads
    both from a container that is never started."""
    name = new_name()
    engine.output(
        ["create", *named(name), "--pull=never", "--network=none", "--entrypoint", "-", image],
        f"no container can be made of the image {image}",
    )
    try:
        word = user.partition(":")[0]
        listed = None if word.isdigit() else _file(engine, name, "/etc/passwd")
        number = int(word) if word.isdigit() else _number_of(listed, word)
        return number, _file(engine, name, _SHELL) is not None
    finally:
        engine.call(engine.removal(name)[1:])


def _number_of(passwd: bytes | None, user: str) -> int | None:
    for line in (passwd or b"").decode(errors="replace").splitlines():
        fields = line.split(":")
        if fields[0] == user and len(fields) > 2 and fields[2].isdigit():
            return int(fields[2])
    return None


def _file(engine: Engine, name: str, path: str) -> bytes | None:
    """Returns a file of a container, following links; None: it is missing."""
    try:
        follow = ["-L"] if engine.kind == "docker" else []  # podman always does
        done = subprocess.run(
            [engine.command, "cp", *follow, f"{name}:{path}", "-"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COPY_BOUND,
            env=environment(),
        )
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            member = archive.next()
            content = archive.extractfile(member) if member is not None else None
            return None if content is None else content.read()
    except (OSError, subprocess.SubprocessError, tarfile.TarError):
        return None

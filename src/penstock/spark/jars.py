"""Finds the jars of table formats: in the user's folder, in the cache, else Spark gets them from
Maven.

Spark resolves Maven coordinates while its JVM starts; the files are then kept, so that later starts
need no network. Jars cannot be added to a running session. Not here: the coordinates (``tables``),
starting Spark with the jars (``session``)."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.files import replacing

FOLDER_VARIABLE = "PENSTOCK_JARS"


class Jars(msgspec.Struct, frozen=True):
    """Holds the jar files that exist on this machine, and the coordinates of the ``missing`` ones,
    which Maven must provide."""

    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()


def file_name(coordinate: str) -> str:
    """Converts a coordinate ``group:artifact:version`` to Maven's file name."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def find_jars(
    packages: Sequence[str], cache_dir: Path, environ: Mapping[str, str] = os.environ
) -> Jars:
    """Finds the files of ``packages`` (Maven coordinates) in the folder that ``PENSTOCK_JARS``
    names, else in the cache. Raises ``ConfigError`` (``spark.jars_missing``) if that folder lacks
    one."""
    named = environ.get(FOLDER_VARIABLE)
    if named and packages:
        folder = Path(named).expanduser().resolve()
        absent = [file_name(p) for p in packages if not (folder / file_name(p)).is_file()]
        if absent:
            raise ConfigError(
                f"{FOLDER_VARIABLE} names {folder}, which lacks {', '.join(absent)}",
                code="spark.jars_missing",
                hint=f"put the files there, or unset {FOLDER_VARIABLE} to let Spark fetch them",
            )
        return Jars(tuple(folder / file_name(p) for p in packages))
    kept = {p: cache_dir / "jars" / file_name(p) for p in packages}
    return Jars(
        tuple(path for path in kept.values() if path.is_file()),
        tuple(p for p, path in kept.items() if not path.is_file()),
    )


def keep_jars(missing: Sequence[str], ivy_dir: Path, cache_dir: Path) -> None:
    """Copies the jars that Spark just resolved from its Ivy folder into the cache, each file
    atomically."""
    for coordinate in missing:
        group = coordinate.split(":")[0]
        resolved = ivy_dir / "jars" / f"{group}_{file_name(coordinate)}"
        if not resolved.is_file():
            continue
        target = cache_dir / "jars" / file_name(coordinate)
        target.parent.mkdir(parents=True, exist_ok=True)
        with resolved.open("rb") as whole, replacing(target, permissions=0o644) as copy:
            shutil.copyfileobj(whole, copy)

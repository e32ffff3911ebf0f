"""Where the jars of a table format come from: a folder of the user's, our cache, else Maven.

Spark resolves Maven coordinates while its JVM starts; the files are then kept, so that every later
start needs no network. Jars cannot be added to a running session. Neighbours: ``tables`` name the
coordinates, ``session`` starts Spark with what is found here.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.files import replacing

FOLDER_VARIABLE = "PENSTOCK_JARS"


class Jars(msgspec.Struct, frozen=True):
    """``files`` are at hand; ``missing`` are the coordinates that Maven must bring."""

    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()


def file_name(coordinate: str) -> str:
    """``group:artifact:version`` -> the name Maven gives the file."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def find_jars(
    packages: Sequence[str], cache_dir: Path, environ: Mapping[str, str] = os.environ
) -> Jars:
    """What of ``packages`` is at hand. A folder named by ``PENSTOCK_JARS`` must hold all of them:
    raises ``ConfigError`` (``spark.jars_missing``) otherwise."""
    named = environ.get(FOLDER_VARIABLE)
    if named and packages:
        folder = Path(named).expanduser().resolve()
        lost = [file_name(p) for p in packages if not (folder / file_name(p)).is_file()]
        if lost:
            raise ConfigError(
                f"{FOLDER_VARIABLE} names {folder}, which lacks {', '.join(lost)}",
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
    """Copy what Spark just resolved into the cache, each file in one step."""
    for coordinate in missing:
        group = coordinate.split(":")[0]
        resolved = ivy_dir / "jars" / f"{group}_{file_name(coordinate)}"
        if not resolved.is_file():
            continue
        target = cache_dir / "jars" / file_name(coordinate)
        target.parent.mkdir(parents=True, exist_ok=True)
        with resolved.open("rb") as whole, replacing(target, permissions=0o644) as copy:
            shutil.copyfileobj(whole, copy)

"""Spark's classes as Java keeps them in memory: a start that maps them is 40 % shorter.

Made once for a Java and a Spark (``penstock doctor --fix``), kept in the user's cache folder. Java
ignores an archive that does not fit its class path. Source: JDK, class data sharing,
``-XX:ArchiveClassesAtExit``. Neighbours: ``class_archive_build`` makes one, ``session`` uses it.
"""

import hashlib
import os
from importlib import metadata
from pathlib import Path

from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.java import JavaHome

SILENT = "-Xlog:disable"  # what does not fit is no user's business
SUFFIX = ".jsa"


def archive_path(java: JavaHome, cache_dir: Path) -> Path:
    """Where the archive for this Java and this Spark lies, or would."""
    spark = metadata.distribution("pyspark")
    what = f"{java.home.resolve()}|{java.version}|{spark.locate_file('pyspark')}|{spark.version}"
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    return cache_dir / "classes" / f"{name}{SUFFIX}"


def keeps_archives(java: JavaHome) -> bool:
    """Java 21 does not take back what it wrote: Spark names one jar twice in its class path."""
    return int(java.version.split(".")[0]) < 21


def use_options(java: JavaHome, cache_dir: Path) -> list[str]:
    """Java options of a start; empty where there is no archive, or others may have written it."""
    path = archive_path(java, cache_dir)
    if not path.is_file() or path.stat().st_uid != os.geteuid() or unsafe(path.parent):
        return []
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", SILENT]

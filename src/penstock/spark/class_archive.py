"""Spark's classes as Java keeps them in memory: a start that maps them takes half the CPU.

One file for each Java, Spark and set of jars, in the user's cache folder; Java itself ignores one
that does not fit its class path. An archive of Spark alone serves a session with more jars too.
Source: JDK, class data sharing: a static archive, since the packaged Java brings none to build a
dynamic one on. Neighbours: ``class_archive_build`` makes them, ``session`` uses them.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.java import JavaHome
from penstock.spark.java_command import class_path

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # what does not fit is no user's business
SUFFIX = ".jsa"


def archive_path(java: JavaHome, jars: Sequence[Path], cache_dir: Path) -> Path:
    """Where the archive for this Java, this Spark and ``jars`` lies, or would."""
    what = [f"{java.home.resolve()}|{java.version}"]
    for file in (java.home / "lib" / "modules", *class_path(jars)):
        with suppress(OSError):
            found = file.stat()
            what.append(f"{file}|{found.st_size}|{found.st_mtime_ns}")
    name = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    return cache_dir / "classes" / f"{name}{SUFFIX}"


def use_options(java: JavaHome, jars: Sequence[Path], cache_dir: Path) -> list[str]:
    """Java options of a start; empty where there is no archive, or others may have written it."""
    for known in (jars, ()):
        path = archive_path(java, known, cache_dir)
        if trusted(path):
            with suppress(OSError):
                os.utime(path)  # those of which the last use is oldest go first
            return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *SILENT]
    return []


def trusted(path: Path) -> bool:
    """Is there an archive, which nobody else can have written?"""
    return path.is_file() and path.stat().st_uid == os.geteuid() and not unsafe(path.parent)

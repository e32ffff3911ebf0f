"""Finds the archive of Spark's classes (class data sharing) that Java maps instead of loading them.

A start that maps them takes half the CPU. There is one archive for each Java, Spark and set of
jars, in the user's cache folder; Java ignores one that does not fit its class path. An archive of
Spark alone also serves a session with more jars. Source: JDK, class data sharing: a static archive,
since the packaged Java has none on which to build a dynamic one. Not here: making archives
(``class_archive_build``)."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.java import JavaHome
from penstock.spark.java_command import class_path

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")  # Java must not log why it ignores an archive
SUFFIX = ".jsa"


def archive_path(java: JavaHome, jars: Sequence[Path], cache_dir: Path) -> Path:
    """Returns the path of the archive for this Java, this Spark and ``jars``, whether or not it
    exists."""
    what = [f"{java.home.resolve()}|{java.version}"]
    for file in (java.home / "lib" / "modules", *class_path(jars)):
        with suppress(OSError):
            found = file.stat()
            what.append(f"{file}|{found.st_size}|{found.st_mtime_ns}")
    name = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    return cache_dir / "classes" / f"{name}{SUFFIX}"


def use_options(java: JavaHome, jars: Sequence[Path], cache_dir: Path) -> list[str]:
    """Returns the Java options that map an archive; empty if there is none, or others may have
    written it."""
    for known in (jars, ()):
        path = archive_path(java, known, cache_dir)
        if trusted(path):
            with suppress(OSError):
                os.utime(path)  # the archive used longest ago is deleted first
            return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *SILENT]
    return []


def trusted(path: Path) -> bool:
    """Returns whether the archive exists and only this user can have written it."""
    return path.is_file() and path.stat().st_uid == os.geteuid() and not unsafe(path.parent)

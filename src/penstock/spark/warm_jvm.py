"""Opens a session in a JVM that a keeper lends to this run, and cleans the JVM before returning it.

Each run gets a new ``SparkSession`` (settings, views, current database) on the one Spark context.
The last of the concurrent runs empties what sessions share when it gives the JVM back: cached
tables, Delta's logs, the Java objects that Python held. A run gives it back only after its last job
has ended; else the keeper ends these jobs, or the JVM. Java's output during the run, for whichever
run, is copied into the run's folder. Not here: the lease (``warm``), a run's own JVM (``jvm``)."""

# pyright: reportPrivateUsage=false
# PySpark has no public way to attach a session to a JVM that it did not start.

import gc
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.files import private
from penstock.spark.jvm import (
    CLOSE_SECONDS,
    Jvm,
    connect,
    end_of,
    let_go,
    silence_dead_java,
    wait_for_calls,
)
from penstock.spark.orphan_jobs import jobs_of
from penstock.spark.warm import JvmLease

ATTACH_SECONDS = 60.0  # a new JVM makes its Spark context in it
SETTLE_SECONDS = 5.0
_JOBS_SECONDS = 3.0  # Spark may still list a job for a moment after it has returned
_LOG_BYTES = 64 << 20


class WarmJvm(Jvm):
    """Uses a lent JVM (``jvm.Jvm``). ``log``: the run's file, which gets Java's output when the run
    ends."""

    lent = True
    process: JvmLease

    def __init__(self, lease: JvmLease, log: Path) -> None:
        super().__init__(lease, log)
        self._pool: Any = None  # the run's, of Spark's scheduler
        self._context: SparkContext | None = None
        self._java: Any = None  # its SparkContext
        self._session = ""

    def attach(self, seconds: float = ATTACH_SECONDS) -> SparkSession:
        """Opens a new session. Raises PySpark's errors, also if the JVM does not answer a call
        within ``seconds``: a JVM that other runs have cannot be killed to end the call."""
        silence_dead_java()
        connect(self.process.address, seconds)
        if not self.process.beside:
            with suppress(OSError):  # resets the peak of resident memory (VmHWM)
                Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        jvm: Any = SparkContext._jvm
        self._java = jvm.org.apache.spark.SparkContext.getOrCreate()
        java = jvm.org.apache.spark.api.java.JavaSparkContext(self._java)
        conf = SparkConf(_jconf=java.getConf())
        self._context = SparkContext(jsc=java, gateway=SparkContext._gateway, conf=conf)
        first = jvm.org.apache.spark.sql.classic.SparkSession.builder().getOrCreate()
        session = first.newSession()
        self._session = str(session.sessionJobTag())
        self.process.name_session(self._session)
        self._join_pool(session)
        spark = SparkSession(self._context, session)
        # PySpark makes it the JVM's default, which threads of other runs would then get
        jvm.org.apache.spark.sql.classic.SparkSession.setDefaultSession(first)
        wait_for_calls()
        return spark

    def _join_pool(self, session: Any) -> None:
        """Gives the run's jobs a scheduler pool, which gets the run's slots before others get more
        than theirs. Otherwise tasks of the job that began first would get each free slot, and a
        long query would keep the lanes of a concurrent run waiting."""
        jvm: Any = SparkContext._jvm
        scheduler = jvm.org.apache.spark.scheduler
        pool = scheduler.Pool(self._session, scheduler.SchedulingMode.FIFO(), self.process.slots, 1)
        self._java.taskScheduler().rootPool().addSchedulable(pool)
        session.conf().set("spark.scheduler.pool", self._session)
        self._pool = pool

    def output_end(self) -> str:
        """Returns the end of Java's output from the open file."""
        return end_of(self.process.log)

    def end(self, stop: Callable[[], object], seconds: float = CLOSE_SECONDS) -> None:
        """Gives the JVM back; if a job of this run still runs, or cleaning fails, the keeper ends
        the job or the JVM. ``stop`` is not called: it would stop Spark for later runs."""
        del stop
        settled: list[bool] = []
        if self.process.poll() is None:
            settling = threading.Thread(
                target=lambda: settled.append(self._settle()), name="spark-settle", daemon=True
            )
            settling.start()
            settling.join(min(seconds, SETTLE_SECONDS))
        let_go()
        self._copy_log()
        if settled == [True]:
            self.process.release()
        else:
            self.process.kill()

    def _settle(self) -> bool:
        """Waits for the run's jobs to end, then empties what sessions share, unless other runs need
        it; returns whether that was done."""
        context, gateway = self._context, SparkContext._gateway
        if context is None or gateway is None:
            return False
        with suppress(Exception):
            deadline = time.monotonic() + _JOBS_SECONDS
            while jobs_of(self._java, self._session):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
            self._java.taskScheduler().rootPool().removeSchedulable(self._pool)
            jvm: Any = gateway.jvm
            session = jvm.org.apache.spark.sql.classic.SparkSession
            alone = self.process.begin_cleaning()
            if alone:
                session.builder().getOrCreate().catalog().clearCache()
                with suppress(Exception):  # not every session has Delta
                    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            session.clearActiveSession()
            if (server := context._accumulatorServer) is not None:
                threading.Thread(target=server.shutdown, daemon=True).start()
            shutil.rmtree(str(context._temp_dir), ignore_errors=True)
            self._context = self._pool = None
            if alone:
                _forget_objects(gateway)
            else:
                gc.collect()  # Java then frees the objects that Python no longer refers to
            return True
        return False

    def _copy_log(self) -> None:
        with suppress(OSError):
            self.process.log.seek(self.process.log_from)
            said = self.process.log.read(_LOG_BYTES)
            self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with private(self.log, "ab") as file:
                file.write(said)


def _forget_objects(gateway: Any) -> None:
    """Frees the Java objects that the gateway keeps for Python, since a Python process that ends
    does not notify the gateway. The gateway's own objects have other names. A call costs as much
    for one object as for all: their names go to Java and back as one text."""
    kept = gateway.java_gateway_server.getGateway().getBindings().keySet()
    names = [n for n in kept.toString()[1:-1].split(", ") if n[:1] == "o" and n[1:].isdigit()]
    jvm = gateway.jvm
    listed = jvm.java.util.regex.Pattern.compile(" ").splitAsStream(" ".join(names))
    kept.removeAll(listed.collect(jvm.java.util.stream.Collectors.toSet()))

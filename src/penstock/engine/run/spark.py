"""Opens the Spark of one run: starts it during the preparation where it is known which Spark the
run needs, gives it up if unused, and archives its classes for the next start.

Not here: how a session is opened (``spark.session``), started early (``spark.early_session``) or
left for the next run (``spark.warm``). Neighbour: ``engine.run``, one object a run.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.plan.destination import table_of
from penstock.engine.plan.open_source import source_reference
from penstock.engine.reporting.accounting import Accounting
from penstock.engine.reporting.timeline import START, STARTING
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError, PenstockError
from penstock.spark.early_session import EarlySession
from penstock.spark.session import choose_master, may_open_early
from penstock.tables.contract import SessionNeeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN_LOG = "log.jsonl"
"""The run's log in its folder. A folder without it belongs to a refused run."""

_JARS = ("spark.jars", "spark.sql.extensions", "spark.sql.catalog")  # settings of the user's jars


class SharedSession(msgspec.Struct, frozen=True, kw_only=True):
    """Keeps Spark's session open for several runs of this process. ``open_until``: closes it.
    ``needs``: of all of them, since a session gets no jars once it is open."""

    open_until: ExitStack
    needs: SessionNeeds


class RunSpark:
    """The Spark of one run. ``folder``: the run's. ``daemon``, ``shared``: as in
    ``engine.run.start.run_pipeline``."""

    def __init__(
        self,
        pipeline: Pipeline,
        home: Home,
        folder: Path,
        observer: RunObserver,
        accounting: Accounting,
        *,
        daemon: bool | None,
        shared: SharedSession | None,
    ) -> None:
        self._pipeline, self._home, self._folder = pipeline, home, folder
        self._observer, self._accounting = observer, accounting
        self._daemon, self._shared = daemon, shared
        self._early: EarlySession | None = None
        self._ours = False
        self.session: SparkSession | None = None
        self.worked = False
        """Whether the run succeeded: only then are classes archived."""

    def start_early(self, stack: ExitStack, check: Callable[[], None]) -> None:
        """Starts Spark during the preparation, where the run will need the Spark of one lane on
        this machine: in nearly all runs. The preparation reports what is wrong here."""
        pipeline = self._pipeline
        if self._shared is not None:
            return
        if pipeline.lanes not in (None, 1) or pipeline.resources is not None:
            return
        try:
            if source_reference(pipeline).kind is RefKind.query:
                return  # its session is opened with the source's needs
            to_table = parse_ref(pipeline.destination.use).kind is RefKind.table
            needs = table_of(pipeline).needs() if to_table else SessionNeeds()
        except PenstockError:
            return
        if not may_open_early(pipeline.spark.master, 1):
            return
        self._early = EarlySession(
            lambda check: self._opened(needs, 1, check), check, self._spark_for(needs, 1)
        )
        stack.callback(self._give_early_up)

    def _give_early_up(self) -> None:
        """Ends an unused Spark, and removes its traces from the run's folder."""
        early, self._early = self._early, None
        if early is not None and early.give_up() and not (self._folder / RUN_LOG).exists():
            shutil.rmtree(self._folder, ignore_errors=True)

    def _spark_for(self, needs: SessionNeeds, lanes: int) -> object:
        master = choose_master(self._pipeline.spark.master, os.cpu_count() or 1, lanes)
        return needs, master

    def _opened(self, needs: SessionNeeds, lanes: int, check: Callable[[], None]) -> "SparkSession":
        from penstock.spark.session import open_session
        from penstock.spark.warm import wanted

        return open_session(
            needs,
            master=self._pipeline.spark.master,
            conf=self._pipeline.spark.conf,
            lanes=lanes,
            scratch_dir=self._folder,
            stays_with=self._home.lasting if wanted(self._daemon) else None,
            staying=self._staying(needs),
            check=check,
        )

    def _staying(self, needs: SessionNeeds) -> SessionNeeds:
        """Returns the needs of a Spark that stays: one serves the runs of all table formats, unless
        the user's settings bring jars that may conflict with another format's."""
        from penstock.spark.warm import wanted
        from penstock.tables.formats import ready_needs

        brings_jars = any(key.startswith(_JARS) for key in self._pipeline.spark.conf)
        return needs.also(ready_needs()) if wanted(self._daemon) and not brings_jars else needs

    def open(
        self, stack: ExitStack, needs: SessionNeeds, lanes: int, check: Callable[[], None]
    ) -> "SparkSession":
        """Opens the session, or takes the one that was started early if it fits. ``stack`` closes
        it. ``check``: raises once the run is to stop."""
        from penstock.spark.session import close_session, how_started, is_ours

        self._observer.phase("start", "starting Spark")
        began = time.monotonic()
        if self._shared is not None:
            needs = self._shared.needs.also(needs)
            stack = self._shared.open_until
        stack.callback(self._keep_classes, needs)  # after the session's end
        if self._early is not None and self._early.for_ == self._spark_for(needs, lanes):
            early, self._early = self._early, None
            stack.callback(early.give_up)
            spark = early.take()
            self._accounting.timeline.add(STARTING, early.began, early.ended, track="Spark")
        else:
            self._give_early_up()
            spark = self._opened(needs, lanes, check)
        stack.callback(close_session, spark)
        self.session, self._ours = spark, is_ours()
        self._accounting.start = how_started()
        ended = time.monotonic()
        self._accounting.timeline.add(START, began, ended)
        self._accounting.time.start += round(ended - began, 3)
        return spark

    def _keep_classes(self, needs: SessionNeeds) -> None:
        """Archives the classes of a Spark that worked, to make its next start quicker."""
        from penstock.spark.class_archive_build import make_soon

        if (
            self.worked
            and self._ours
            and not (self._pipeline.spark.master or "").startswith("sc://")
        ):
            make_soon(self._staying(needs))


def start_staying(home: Home) -> bool:
    """Starts the Spark that stays for the next runs of pipelines without Spark settings of their
    own. Returns whether one had to be started. Raises ``ConfigError`` (``config.daemon``) where
    none would stay, and as ``spark.session.open_session``."""
    from penstock.spark.session import close_session, how_started, open_session, stays
    from penstock.spark.warm import wanted
    from penstock.tables.formats import ready_needs

    if not wanted(True):
        raise ConfigError(
            "no Spark stays for the next run: PENSTOCK_DAEMON=0 or CI=true is set",
            code="config.daemon",
            hint="set PENSTOCK_DAEMON=1",
        )
    alone = ConfigError(
        "each run here has a Spark of its own: PENSTOCK_SPARK_MASTER names a cluster, or variables"
        " configure Spark or Hadoop (SPARK_CONF_DIR, ...)",
        code="config.daemon",
        hint="docs/cli-machine.md shows which runs share a Spark",
    )
    if not may_open_early(None, 1):
        raise alone
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        spark = open_session(
            SessionNeeds(), scratch_dir=Path(scratch), stays_with=home.lasting,
            staying=ready_needs(),
        )  # fmt: skip
        try:
            if not stays():
                raise alone
            return how_started() == "cold"
        finally:
            close_session(spark)


def java_died(seconds: float = 0.0) -> PenstockError | None:
    """Returns the error of an ended Java process of Spark; None: it lives, or there is none.
    ``seconds``: how long to wait for its end."""
    from penstock.spark.session import java_death

    return java_death(seconds)


def kill_java() -> None:
    """Kills Spark's Java process, so that calls into it return."""
    from penstock.spark.session import kill_java

    kill_java()


def jvm_peak() -> int:
    """Returns the peak memory of Spark's Java process, in bytes."""
    from penstock.spark.session import jvm_peak_bytes

    return jvm_peak_bytes()

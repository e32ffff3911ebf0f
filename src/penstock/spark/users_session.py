"""Finds the Spark session that the user's own program has open, and makes one next to it.

In a notebook, a Spark job or on Databricks there is a session already, and a second Spark must not
start next to it. A run gets a session on the same Spark with separate settings, so that the user's
never change: ``newSession`` of a classic one, ``cloneSession`` through Spark Connect. Nothing here
stops the user's Spark. Not here: sessions that Penstock starts (``session``)."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import ConfigError
from penstock.spark.error_text import summary
from penstock.spark.workers_python import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOINED = ("spark.sql.extensions",)  # settings that are lists: ours must be among the user's
_OF_JARS = "spark.jars"  # settings that are read before Spark starts


class SessionConf(Protocol):
    """Defines what a run needs from the user's session (``session.Needs``)."""

    @property
    def conf(self) -> dict[str, str]:
        """Settings of the session."""
        ...


def users_session() -> "SparkSession | None":
    """Returns the open session of the user's program, which has then imported PySpark; the one of
    this thread before that of the process. None: there is none, or it was stopped."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()
        found.conf.get("spark.sql.session.timeZone")
    except (PySparkException, AttributeError, OSError):  # none, or its Java is gone
        return None
    return found


def masters_differ(users: "SparkSession", master: str | None) -> None:
    """Raises ``ConfigError`` (``spark.other_session``) if the pipeline file names a master other
    than that of the user's session."""
    its = users.conf.get("spark.master", None)
    if master is None or master == its or master.startswith("sc://"):
        return
    raise ConfigError(
        f"this program has a Spark session on {its}, and the pipeline names {master}",
        code="spark.other_session",
        hint="leave spark.master out, or stop the session first: a process has one Spark",
    )


def beside(users: "SparkSession", needs: SessionConf, conf: Mapping[str, str]) -> "SparkSession":
    """Opens a session on the Spark of ``users`` with the settings ``conf``. Raises ``ConfigError``
    if that Spark lacks what a table format needs, or cannot open a separate session."""
    _refuse_lacks(users, needs)
    use_this_python(users)
    made = _another(users)
    try:
        for name, value in conf.items():
            if made.conf.isModifiable(name):
                made.conf.set(name, value)
    except Exception as failure:  # PySpark, py4j and gRPC have no common base
        raise _not_opened(failure) from failure
    return made


def leave(made: "SparkSession") -> None:
    """Ends a session of :func:`beside`, and nothing of the user's: ``stop`` would end a classic
    Spark, or a Connect server of this process, and closing its client ends threads that all clients
    of the process share."""
    session: Any = made
    if _is_remote(made):
        with suppress(Exception):  # the server may be gone
            session.client.release_session()


def _is_remote(session: "SparkSession") -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def _another(users: "SparkSession") -> "SparkSession":
    session: Any = users
    try:
        if _is_remote(users):
            return session.cloneSession()
        return session.newSession()
    except Exception as failure:
        raise _not_opened(failure) from failure


def _not_opened(failure: Exception) -> ConfigError:
    return ConfigError(
        f"this program's Spark gave no second session: {summary(failure)}",
        code="spark.not_started",
        hint="Spark 4.1 or newer is needed on the server; or stop the session and run again",
    )


def _refuse_lacks(users: "SparkSession", needs: SessionConf) -> None:
    """Raises ``ConfigError`` (``spark.lacks``) if the user's Spark was started without a setting
    that can only be given at its start."""
    missing: list[str] = []
    for name, value in needs.conf.items():
        if name.startswith(_OF_JARS) or not name.startswith("spark.sql."):
            continue
        its = users.conf.get(name, None) or ""
        if name in _JOINED and value in its.split(","):
            continue
        if its != value:
            missing.append(f"{name}={value}")
    if missing:
        raise ConfigError(
            f"this program's Spark session was started without {', '.join(missing)}",
            code="spark.lacks",
            hint="start the session with these settings and the jars, write to parquet:PATH, or"
            " stop the session, so that Penstock starts its own",
        )

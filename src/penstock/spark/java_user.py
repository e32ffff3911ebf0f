"""Names the user and a home folder to Java, if the system names none that it can use.

Java looks them up in the password database, never in ``HOME``. A user without an entry there (a
container that runs as some number) has no name: Hadoop then refuses every use of a file system
("Invalid UID, could not determine effective user"). A home that is not writable breaks what Java
keeps in it. Not here: folders of other programs (``config.user_folders``)."""

import os
from pathlib import Path
from typing import Any

from penstock.config.user_folders import may_write, passwd_home


def is_known() -> bool:
    """Returns whether the system has a name for the user."""
    return passwd_home() is not None


def user_options(cache: Path) -> list[str]:
    """Returns the Java options: none if the user's entry names a home that can be written."""
    named = passwd_home()
    options = [] if named is not None else [f"-Duser.name={_name()}"]
    if named is None or not may_write(Path(named)):
        options.append(f"-Duser.home={cache}")
    return options


def user_variables() -> dict[str, str]:
    """Returns the variable from which Spark takes a user's name before it calls Hadoop."""
    return {} if is_known() else {"SPARK_USER": _name()}


def log_in(jvm: Any) -> None:
    """Logs the user in to Hadoop by a name, where the system has none. ``jvm``: PySpark's view of
    a JVM that has opened no file system yet."""
    if is_known():
        return
    users = jvm.org.apache.hadoop.security.UserGroupInformation
    try:
        users.getLoginUser()
    except Exception:  # whatever py4j makes of Java's failure
        users.setLoginUser(users.createRemoteUser(_name()))


def _name() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or f"uid-{os.geteuid()}"

"""Starts Spark's Python workers on a local master by Spark's own daemon, without its zip archives.

Spark puts a zip of its Python part first on its workers' path, and modules in a zip are compiled at
every start: 0.7 s of CPU, against 0.15 s for the installed package. The zip is inside that package,
so both have one version. Each task also lists the files of every zip and jar that was imported from
or looked into, which takes 0.1 s of CPU. PySpark itself is loaded without NumPy, which it imports
for statistics that no worker of ours uses; code that runs in a worker can still import it (a user's
data source may need it). Starts ``tasks.fork_server`` beside them. ``spark.session`` names this
module in Spark's settings (``spark.python.daemon.module``)."""

import os
import runpy
import sys
from collections.abc import Sequence
from importlib import import_module

from penstock import bytecode
from penstock.runtimes.stopped import wake_with_parent
from penstock.unused_packages import leave_out, let_in


def without_zips(path: Sequence[str], spark_home: str) -> list[str]:
    """Returns ``path`` without Spark's own zips and jars if the package that holds them can be
    imported from it; else unchanged."""
    package, site = os.path.join(spark_home, "__init__.py"), os.path.dirname(spark_home)
    if not os.path.isfile(package) or site not in path:
        return list(path)
    zips = [os.path.join(spark_home, *names) for names in (("python", "lib"), ("jars",))]
    return [p for p in path if os.path.dirname(p) not in zips]


if __name__ == "__main__":
    wake_with_parent()  # so that a stopped daemon ends with its JVM, and its workers with it
    sys.path[:] = without_zips(sys.path, os.path.abspath(os.environ.get("SPARK_HOME", "")))
    sys.path_importer_cache.clear()  # else each task still lists the files of the removed zips
    bytecode.keep()

    from penstock.tasks import fork_server
    from penstock.tasks.child_process import environment

    fork_server.start(environment(os.environb))  # it is ready before the first worker needs it
    leave_out("numpy", "pandas")
    import_module("pyspark.worker")
    let_in("numpy", "pandas")
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)

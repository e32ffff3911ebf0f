"""What starts Spark's Python workers on a local master: Spark's own daemon, from the installed
package.

Spark puts a zip of its Python part first on its workers' path, and what comes out of a zip is
compiled anew at every start: 0.7 s of CPU where the installed package takes 0.15. Both are of one
distribution, for the zip lies inside the package. Nothing else differs. Neighbour: ``session``
names this module in Spark's settings.
"""

import os
import runpy
import sys
from collections.abc import Sequence


def without_zips(path: Sequence[str], spark_home: str) -> list[str]:
    """``path`` without Spark's own zips, where the package that they lie in can be imported from
    it; else as it is."""
    package, site = os.path.join(spark_home, "__init__.py"), os.path.dirname(spark_home)
    if not os.path.isfile(package) or site not in path:
        return list(path)
    zips = os.path.join(spark_home, "python", "lib")
    return [p for p in path if os.path.dirname(p) != zips]


if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path, os.path.abspath(os.environ.get("SPARK_HOME", "")))
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)

"""Opens Spark sessions: finds Java and jars, starts or borrows the JVM, converts types and errors.

Only ``session`` and the modules that it uses (``jvm``, ``warm_jvm``) start a JVM or reach below the
session API that Spark Connect has. Not here: tables (``penstock.tables``).
"""

"""Spark's session and nothing of its tables: which Java, which jars, which master, which types.

Only ``session`` starts a JVM and only it may reach below the session API that Spark Connect has.
"""

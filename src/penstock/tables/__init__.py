"""Built-in destinations that Spark writes, one module a format. ``contract`` is what the engine
knows; ``parquet`` and ``delta`` implement it; ``memory`` is the in-memory twin."""

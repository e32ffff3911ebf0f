"""The Python interface: ``penstock.run``, ``plan``, ``check``, ``discover``, ``read``, ``write``,
``state``, ``runs``, ``rejects``, ``register``.

``verbs`` has most functions, ``reading`` and ``writing`` one each. ``spark_source`` defines Spark's
format ``penstock``, ``answers`` the returned structs. ``pipelines`` loads pipelines by file,
connectors or name, ``asking`` queries a connector, ``roles`` decides which end a connector is,
``showing`` shows progress. The command line calls the same functions. Not here: the engine, what is
printed (``cli``). ``penstock`` itself exports the names (lazily)."""

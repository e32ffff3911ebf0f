"""The Python interface: ``penstock.run``, ``plan``, ``check``, ``discover``, ``read``, ``write``,
``state``, ``runs``, ``rejects``, ``register``.

``verbs`` has most functions, ``reading`` and ``writing`` one each, ``spark_source`` is the format
``penstock`` of Spark, ``answers`` what they return,
``pipelines`` reads what names a pipeline, ``asking`` asks a connector, ``roles`` says which end a
connector is, ``showing`` shows progress. The command line calls the same functions below its
options. Not here: the engine, what is printed (``cli``). ``penstock`` itself exports the names
(lazily)."""

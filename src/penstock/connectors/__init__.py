"""Resolves a connector reference, such as ``airbyte:source-faker@7.2.1``, to a connector that can
be run.

``reference`` parses what the user wrote; ``install`` builds and finds environments (``uv`` runs
uv); ``launch`` has what another process or host needs to run a connector, and is the only module
that a lane imports from this package; ``source``, ``destination`` and ``transform`` are the facades
of the roles.
"""

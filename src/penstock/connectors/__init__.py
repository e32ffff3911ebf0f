"""From ``airbyte:source-faker@7.2.1`` to something that runs.

``reference`` reads what the user wrote; ``install`` builds and finds environments (``uv`` runs
uv); ``launch`` is what another process or host needs to run a connector again, and all that a lane
imports from here; ``source`` is the facade of the source role.
"""

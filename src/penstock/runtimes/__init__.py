"""How a connector runs and dies. Knows no protocol: bytes in, bytes out, an exit code.

``contract`` is what the protocols are written against; ``process`` runs a local executable;
``memory`` is the in-memory twin that ships for tests. Beside them: ``supervisor`` (a connector's
parent), ``spawn``, ``pipes``, ``env``, ``private_files`` (argument files), ``stderr``,
``masking`` (secrets).
"""

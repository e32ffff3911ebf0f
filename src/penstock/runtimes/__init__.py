"""Starts connectors, connects their stdin, stdout and stderr, and ends them. Knows no protocol.

``contract`` is the interface that the protocols use; ``process`` runs a local executable;
``memory`` runs a script in its place, for tests; ``wasm`` calls a WebAssembly component. Also:
``supervisor`` (a connector's parent), ``spawn``, ``pipes``, ``env``, ``private_files`` (argument
files), ``granted_files`` (files that a connector names), ``limits``, ``linux_sandbox``, ``stderr``,
``masking`` (secrets), ``metered``.
"""

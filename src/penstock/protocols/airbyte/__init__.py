"""Implements the Airbyte protocol: sources and destinations. The layers above use ``spec.SPEC`` and
``package.PACKAGE`` only.

``messages`` and ``enums`` (the wire), ``source`` and ``destination`` (the roles), ``questions``
(spec and check of both), ``state``, ``schema``, ``retry``. Used by ``source``: ``probe``,
``record_reader``, ``side_messages``, ``catalog``, ``stream_config``. Used by ``destination``:
``outgoing``, ``record_encoder``, ``destination_output``, ``state_echoes``. ``serve``: Penstock as a
destination of an Airbyte host. ``declarative_wrapper`` runs declarative manifests.
"""

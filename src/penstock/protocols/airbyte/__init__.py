"""The Airbyte protocol. ``spec.SPEC`` and ``package.PACKAGE`` are all that the layers above use.

``messages`` and ``enums`` (the wire), ``source`` (conversation), ``state``, ``schema``; beside
them what ``source`` is made of: ``probe``, ``record_reader``, ``side_messages``, ``catalog``,
``stream_config``; and ``destination``: ``outgoing``, ``record_encoder``, ``destination_output``,
``state_echoes``. ``serve``: what a host of ours hears. ``declarative_wrapper`` runs manifests.
"""

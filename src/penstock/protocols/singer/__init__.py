"""The Singer protocol. ``spec.SPEC`` and ``package.PACKAGE`` are all that the layers above use.

``messages`` (the wire), ``source`` and ``destination`` (conversations), ``state``, ``schema``;
beside them what ``source`` is made of: ``command_line``, ``probe``, ``config_writeback``,
``record_reader``, ``line_decoding``, ``stream_names``, ``batch_files``, ``time_extracted``,
``catalog``, ``catalog_metadata``, ``stream_config``; and ``destination``: ``probe`` too,
``outgoing_schema``, ``outgoing``, ``target_output``, ``state_echoes``. ``serve``: what a host of
ours hears.
"""

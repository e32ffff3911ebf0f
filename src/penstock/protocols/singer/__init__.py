"""Implements the Singer protocol: taps and targets. The layers above use ``spec.SPEC`` and
``package.PACKAGE`` only.

``messages`` (the wire), ``source`` and ``destination`` (the roles), ``state``, ``schema``. Used by
``source``: ``command_line``, ``probe``, ``config_writeback``, ``record_reader``, ``line_decoding``,
``stream_names``, ``batch_files``, ``batch_parquet``, ``batch_rows``, ``time_extracted``,
``catalog``, ``catalog_metadata``, ``stream_config``. Used by ``destination``: ``probe`` too,
``outgoing_schema``, ``outgoing``, ``target_output``, ``state_echoes``. ``serve``: Penstock as a
target of a Singer runner.
"""

"""Implements the Syncmaven protocol: destinations. The layers above use ``spec.SPEC`` and
``package.PACKAGE`` only.

``messages`` (the wire), ``destination`` (the role), ``state``, ``schema``. Used by ``destination``:
``host`` (where its processes run), ``reply_reader``, ``probe`` (questions), ``stream_specs``,
``outgoing``, ``row_check``, ``session`` (one process that gets rows), ``writer`` (a whole write),
``failed_rows``. ``state_rpc``: the state that a connector keeps, served to it by HTTP
(``state_rpc_app``, ``state_store``).
"""

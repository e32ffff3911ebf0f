"""Rapidbyte v4: connectors that are WebAssembly components.

For the layers above: ``messages`` (the documents), ``source``, ``destination``, ``transform`` (the
roles' conversations); and what is planned before any runs: ``lookup``, ``manifest``,
``permissions``, ``overrides``, ``retries``. Beneath them, from the outside in: ``conversation``
(threads and queues), ``lifecycle`` (open to close), ``host`` (the 19 functions) with ``frames``,
``pipe``, ``squeeze``, ``ipc``, ``narrow``, ``keys``, ``metrics``, ``sockets``, ``network``;
``binding``, ``adapter``, ``packing``, ``records`` (how values cross). The interface itself is
``wit/rapidbyte-connector.wit``. Nothing is imported by default: wasmtime takes a tenth of a second.
"""

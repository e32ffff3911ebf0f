"""Rapidbyte v4: connectors that are WebAssembly components.

``messages`` (the documents), ``source``, ``destination``, ``transform`` (the roles' conversations)
and ``manifest``, ``permissions`` (what a connector may do) are for the layers above. Beneath them,
from the outside in: ``conversation`` (threads and queues), ``lifecycle`` (open to close), ``host``
(the 19 functions) with ``frames``, ``pipe``, ``squeeze``, ``ipc``, ``narrow``,
``keys``, ``metrics``, ``sockets``, ``network``;
``binding``, ``adapter``, ``packing`` and ``records`` (how values cross). The interface itself is
``wit/rapidbyte-connector.wit``. Nothing is imported by default.
"""

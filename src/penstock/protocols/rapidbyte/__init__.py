"""Implements the Rapidbyte v4 protocol: connectors that are WebAssembly components. The layers
above use ``spec.SPEC`` and ``package.PACKAGE`` only.

The roles: ``source`` with ``source_stream``, ``destination``, ``transform``. Below them, in the
order of imports: ``write`` (many streams of a destination), ``guest`` (a running component),
``declared`` (the declarations of a component and a pipeline, read before a run), ``fastpath`` (the
adapter that carries bytes fast), ``state`` (a stream's saved state), ``wire`` (the data that
crosses the boundary) and ``lookup`` (the file of a component). The interface is
``wit/rapidbyte-connector.wit``.
"""

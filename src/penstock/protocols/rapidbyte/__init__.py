"""Rapidbyte v4: connectors that are WebAssembly components. ``spec.SPEC`` and ``package.PACKAGE``
are all that the layers above use.

``source`` with ``source_stream``, ``destination``, ``transform``: the roles, as the engine asks
for them. Below them, from the outside in: ``write`` (many streams of a destination), ``guest``
(a running component), ``declared`` (what a component and a pipeline say before anything runs),
``fastpath`` (the adapter that carries bytes fast), ``state`` (a stream's saved state), ``wire``
(what crosses the boundary) and ``lookup`` (where a component lies). The interface itself is
``wit/rapidbyte-connector.wit``.
"""

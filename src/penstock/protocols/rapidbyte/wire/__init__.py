"""Describes and converts the data that crosses the boundary of a Rapidbyte v4 component: JSON
documents, WIT records, names of the WIT interfaces, Arrow frames and their validation, frame
compression, the outer format of WebAssembly binaries. Not here: running a component
(``rapidbyte.guest``), deciding what it may do (``rapidbyte.declared``). Imports nothing else of
``protocols.rapidbyte``.
"""

"""Runs WebAssembly components: compiled once, each run with its own store, time and memory limits.

This runtime offers calls, not bytes: ``contract`` is the interface that a protocol uses,
``component`` describes what to run, ``compile_cache`` compiles it (with a cache), ``instance`` runs
it, ``wasi`` and ``guest_output`` give it its part of the system. Not here: the interfaces and
functions that a component imports and exports (``protocols/rapidbyte``). This module imports none
of its modules, since wasmtime takes long to import.
"""

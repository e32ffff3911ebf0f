"""WebAssembly components: compiled once, one store per conversation, bounded in time and memory.

This runtime offers calls, not bytes: ``contract`` says what a protocol gives and gets,
``compile_cache`` turns a binary into a component (with a cache), ``instance`` runs one, ``wasi``
and ``guest_output`` are what it sees of the system. It knows no protocol: interfaces, types and the
functions given to a component are its caller's (``protocols/rapidbyte``). Nothing is imported by
default.
"""

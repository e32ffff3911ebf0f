"""Built-in transforms of a stream's batches, before its parts are written. ``contract`` is what a
worker knows; ``open`` finds one by its name; ``sql`` and ``validate`` implement it. Not here: wasm
transforms (``protocols.rapidbyte``) and SQL over whole streams (Spark)."""

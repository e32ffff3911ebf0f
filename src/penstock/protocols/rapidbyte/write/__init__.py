"""A destination component written to: many streams at once over a component that writes one stream
a run, and which states its checkpoints cover. Not here: one run of a component (``guest``). Runs
beside a connector. Neighbour: ``protocols.rapidbyte.destination`` offers it to the engine.
"""

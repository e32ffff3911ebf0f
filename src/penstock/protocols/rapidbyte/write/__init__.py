"""Writes many streams in parallel to a destination component, which writes one stream a run, and
decides which states its checkpoints acknowledge. Runs in the connector's task. Not here: one run of
a component (``guest``). Neighbour: ``protocols.rapidbyte.destination`` offers it to the engine.
"""

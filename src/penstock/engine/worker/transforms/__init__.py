"""Applies transforms inside a lane: takes a source's events, yields the events of the transformed
rows.

Built-in transforms work on one batch at a time; transform connectors run in parallel with the lane,
once per stream. Not here: SQL over whole streams (``engine.deliver.stream_queries``). Runs next to
a connector. Neighbours: ``engine.worker.lane`` puts the stages between its source and
``engine.worker.sealer``.
"""

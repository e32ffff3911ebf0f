"""Transforms inside a lane: events of a source go in, events of what was made of them come out.
Built-in transforms work on one batch at a time, connectors run beside the lane for each stream.
SQL over whole streams is not here (``engine.deliver.stream_queries``). Runs beside a connector.
Neighbours: ``engine.worker.lane`` puts the stages between its source and
``engine.worker.sealer``.
"""

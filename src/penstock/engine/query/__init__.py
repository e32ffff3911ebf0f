"""Reads lanes that are models: a query, a table or files that Spark reads.

Runs in the driver. Neighbours: ``engine.plan.model_source`` plans a model and makes its reader,
``engine.run.lane_runner`` calls it, ``spark`` runs the query. Not here: how rows are sealed
(``engine.worker``).
"""

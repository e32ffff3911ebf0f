"""Queries that a database runs: their columns, and their rows as Arrow tables. Imports no Spark:
rows are read in Spark's tasks, and columns also while no Spark is open."""

"""Queries, tables and files that Spark reads, as a source. No process is spoken with: a Spark job
stages the rows (``engine.sync.model_rows``), and the lane reads them here."""

"""Reads the parts of loads as DataFrames in their table's columns, for what Spark writes."""

"""Keeps every version of a key in a table (slowly changing dimension, type 2)."""

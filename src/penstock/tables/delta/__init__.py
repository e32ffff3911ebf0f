"""The table format ``delta:PATH``: Delta Lake tables."""

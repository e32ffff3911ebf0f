"""The table format ``parquet:PATH``: folders of Parquet files."""

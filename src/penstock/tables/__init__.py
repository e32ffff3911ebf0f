"""Built-in destinations: tables, one module per format. The engine imports ``contract`` and
``open`` only; ``parquet`` and ``delta`` implement the contract; ``memory`` is its in-memory twin
for tests."""

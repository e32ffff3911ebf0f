"""A connector's configuration against the JSON Schema that it published, and the secrets in it. Not
here: JSON Schema of records, which ``codec.json_schema`` turns into types. Runs in the driver.
Neighbours: ``connectors`` and ``config`` ask before a connector is started.
"""

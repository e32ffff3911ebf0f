"""Validates a connector's configuration against the JSON Schema that the connector publishes, and
finds the secrets in it. Runs in the driver. Not here: the JSON Schema of records, which
``codec.json_schema`` converts to types. Neighbours: ``connectors`` and ``config`` call it before a
connector is started.
"""

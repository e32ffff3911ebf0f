"""A form from the JSON Schema that a connector publishes: ``fields`` builds it for a configuration,
``posted`` reads back what the browser sends, ``kinds`` decides which field a property gets,
``rich_text`` makes descriptions safe.

The contract is Airbyte's (``order``, ``airbyte_secret``, ``always_show``, ``group``, ...). What no
field is known for becomes a JSON editor of that part. Not here: validation, which is that of
``check`` (``protocols.json_schema.config_check``).
"""

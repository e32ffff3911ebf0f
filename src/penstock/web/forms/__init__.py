"""A form from the JSON Schema that a connector publishes: ``fields`` builds it for a configuration,
``posted`` reads back what the browser sends, ``kinds`` decides which field a property gets,
``rich_text`` makes descriptions safe.

The contract is Airbyte's (``order``, ``airbyte_secret``, ``always_show``, ``group``, ...). A
property without a matching field gets a JSON editor. Not here: validation, which ``check`` does
(``protocols.json_schema.config_check``).
"""

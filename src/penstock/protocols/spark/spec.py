"""Describes the protocol to the layers above, without loading any of it (``ProtocolSpec``)."""

from penstock.config.protocol_spec import ProtocolSpec

SPEC = ProtocolSpec(
    name="spark",
    source="a query of Spark SQL",
    destination="no destination",
    queries=True,
)

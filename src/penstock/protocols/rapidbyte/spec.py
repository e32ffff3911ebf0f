"""Describes the protocol to the layers above, without loading any of it (``ProtocolSpec``)."""

from penstock.config.protocol_spec import ProtocolSpec
from penstock.protocols.rapidbyte.lookup import component_file

SPEC = ProtocolSpec(
    name="rapidbyte",
    source="a WebAssembly source",
    destination="a WebAssembly destination",
    sources=("source-",),
    destinations=("dest-", "destination-"),
    transforms=("transform-",),
    components=True,
    keeps_keys=True,
    find=component_file,
)

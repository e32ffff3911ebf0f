"""What is known of the protocol before anything of it is loaded."""

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
    find=component_file,
)

"""Names the WIT interfaces of v4, and the host's functions grouped by the type of their result.

The WIT text is ``wit/rapidbyte-connector.wit``; a test compares these names with it. Neighbours:
``rapidbyte.fastpath.wrap`` and ``rapidbyte.guest.host_imports`` give the functions to a component,
``rapidbyte.guest.host`` implements them.
"""

PACKAGE_NAME = "rapidbyte:connector"
VERSION = "4.0.0"
PROTOCOL_VERSION = "4"

HOST = f"{PACKAGE_NAME}/host@{VERSION}"
TYPES = f"{PACKAGE_NAME}/types@{VERSION}"
FAST = "penstock:fast/host"
"""The host interface that a wrapped component imports: ``HOST`` and functions that carry text."""

NO_RESULT = ("log", "frame-drop", "socket-close")
UNIT_RESULT = ("emit-batch", "checkpoint", "metric", "emit-dlq-record", "state-put", "frame-seal")
VALUE_RESULT = ("state-cas", "frame-new", "frame-write", "frame-len", "frame-read", "connect-tcp")
OPTION_RESULT = ("next-batch", "state-get")
SOCKET_RESULT = ("socket-read", "socket-write")
FUNCTIONS = NO_RESULT + UNIT_RESULT + VALUE_RESULT + OPTION_RESULT + SOCKET_RESULT


def interface(role: str) -> str:
    """Returns the name of the interface that a component of this role exports."""
    return f"{PACKAGE_NAME}/{role}@{VERSION}"

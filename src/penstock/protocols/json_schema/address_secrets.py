"""Finds secrets inside an address or a connection string: ``?token=...``, ``;Password=...``,
``user:password@``.

Needed because a schema marks whole values as secret, and addresses are seldom marked. Not here:
marked values (``config_check``, which calls this for every text of a configuration).
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

_PARAMETER = re.compile(r"(?:^|[?&#;])\s*([\w.\-%\[\] ]{1,64})=([^&#;\s\"'<>]+)")
_USER = re.compile(r"://[^/\s:@?#]*:([^/\s@?#]+)@")
_SECRET = re.compile(
    r"pass(?:word|wd|phrase)|pwd$|secret|token$|credential|bearer|signature|authorization"
    r"|(?:api|access|account|app|auth|client|private|shared|signing|subscription)[_.\- ]?key$",
    re.IGNORECASE,
)
_MAYBE = re.compile(r"^(?:auth|code|key|pass|pin|sig)$", re.IGNORECASE)
_LEAST = 8
"""The least characters of a secret under a name that may mean something else (``key=name``)."""
_LONGEST = 64 << 10


def address_secrets(text: str) -> Iterator[str]:
    """Yields each secret as it is written, and percent-decoded."""
    if ("=" not in text and "@" not in text) or len(text) > _LONGEST:
        return
    for match in _PARAMETER.finditer(text):
        name, value = unquote_plus(match[1]).strip(), match[2]
        if _SECRET.search(name) or (_MAYBE.match(name) and len(value) >= _LEAST):
            yield from dict.fromkeys((value, unquote_plus(value)))
    for match in _USER.finditer(text):
        yield from dict.fromkeys((match[1], unquote(match[1])))

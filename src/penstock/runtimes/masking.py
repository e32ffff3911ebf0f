"""Secrets out of text: every known secret value becomes ``****`` (L10).

Not here: which values are secret (``protocols.json_schema.config_check``), and records, which are
data and never masked. Works on whole lines, so a secret that two reads split is still found;
whoever must cut a line cuts it where :meth:`Masker.safe_cut` says.

Found in these forms: as it is, each long line of a value of several lines (a private key),
JSON-escaped once and twice, as Python shows it, and URL-encoded. Not found: a secret that was
hashed, encoded otherwise (base64 of ``user:password``) or cut in pieces by the connector.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "****"
SHORTEST = 3
"""Shorter values are left alone: masking each ``1`` or ``no`` of a log hides nothing and makes the
log unreadable."""
_SHORTEST_LINE = 8


class Masker:
    """``mask`` for text, ``mask_data`` for JSON data. Cheap where nothing matches: one search."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these as well from now on; other threads may be masking."""
        for secret in secrets:
            self._forms.update(_forms(secret))
        # Longest first: of two secrets that begin alike the alternation takes the first listed.
        ordered = sorted(self._forms, key=lambda f: (-len(f), f))
        self._longest = len(ordered[0]) if ordered else 0
        # A lookahead finds a match at every position, so that secrets that overlap are all found.
        listed = "|".join(map(re.escape, ordered))
        self._every = re.compile(f"(?=({listed}))") if ordered else None
        self._any = re.compile(listed) if ordered else None  # last: what it finds, the other must

    def __bool__(self) -> bool:
        return self._any is not None

    def mask(self, text: str) -> str:
        if self._any is None or self._any.search(text) is None:
            return text
        out: list[str] = []
        end = 0
        for start, stop in self._spans(text):
            out += (text[end:start], MASK)
            end = stop
        out.append(text[end:])
        return "".join(out)

    def mask_data(self, value: Any) -> Any:
        """The same JSON data with its strings masked, keys included."""
        if self._any is None:
            return value
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            return {self.mask_data(k): self.mask_data(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.mask_data(item) for item in value]
        return value

    def safe_cut(self, text: str) -> int:
        """Where a line of which more will come may be cut: no secret lies across it, even one whose
        end is still to come. 0 where the whole must be kept."""
        cut = len(text) - max(self._longest - 1, 0)
        if cut <= 0:
            return 0
        for start, stop in self._spans(text):
            if start < cut < stop:
                return start
        return cut

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Merged (start, end) of everything secret, in order."""
        spans: list[tuple[int, int]] = []
        if self._every is None:
            return spans
        for found in self._every.finditer(text):
            start, stop = found.span(1)
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
        return spans


def _forms(secret: str) -> set[str]:
    if len(secret) < SHORTEST:
        return set()
    values = {secret, secret.strip()}
    if "\n" in secret:
        values.update(line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)
    forms: set[str] = set()
    for value in values:
        escaped = json.dumps(value)[1:-1]
        plain = json.dumps(value, ensure_ascii=False)[1:-1]
        encoded = quote(value, safe="")
        forms |= {value, escaped, plain, json.dumps(escaped)[1:-1], json.dumps(plain)[1:-1]}
        forms |= {repr(value)[1:-1], quote(value), encoded, quote_plus(value)}
        forms.add(re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), encoded))
    return {form for form in forms if len(form) >= SHORTEST}

"""Secrets out of text: every known secret value becomes ``****`` (L10).

Not here: which values are secret (``protocols.json_schema.config_check``), and records, which are
data and never masked. Works on whole lines, so a secret that two reads split is still found;
whoever must cut a line cuts it where :meth:`Masker.safe_cut` says.

Found in these forms: as it is, each long line of a value of several lines (a private key),
JSON-escaped once and twice, as Python shows it, URL-encoded, and in base64 with other text around
it (``user:password`` of ``Authorization: Basic``). Not found: a secret that was hashed, encoded
otherwise or cut in pieces by the connector.
"""

import base64
import json
import re
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import quote, quote_plus

from penstock.errors import PenstockError

MASK = "****"
SHORTEST = 3
"""Shorter values are left alone: masking each ``1`` or ``no`` of a log hides nothing and makes the
log unreadable."""
_SHORTEST_LINE = 8
_SHORTEST_ENCODED = 6
"""Bytes of a secret that is looked for in base64: of fewer too little is left that is its alone."""


class Masker:
    """``mask`` for text, ``mask_data`` for JSON data, ``errors`` for what is raised. Cheap where
    nothing matches: one search. Any thread may use it and add to it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._adding = threading.Lock()
        self._longest = 0
        self._every: re.Pattern[str] | None = None
        self._any: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these as well from now on."""
        with self._adding:
            forms = self._forms.union(*map(_forms, secrets))
            if forms == self._forms:
                return
            self._forms = forms
            # Longest first: of two secrets that begin alike the alternation takes the first listed.
            ordered = sorted(forms, key=lambda f: (-len(f), f))
            self._longest = len(ordered[0])
            # A lookahead finds a match at every position, so that secrets that overlap are all
            # found.
            listed = "|".join(map(re.escape, ordered))
            self._every = re.compile(f"(?=({listed}))")
            self._any = re.compile(listed)  # last: what it finds, the other must

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

    @contextmanager
    def errors(self) -> Generator[None]:
        """An error of the tree that passes has its words masked."""
        try:
            yield
        except PenstockError as e:
            self.mask_error(e)
            raise

    def mask_error(self, error: PenstockError) -> None:
        """Its words masked in place, so that it can be raised on."""
        error.message = self.mask(error.message)
        error.args = (error.message,)
        if error.hint is not None:
            error.hint = self.mask(error.hint)
        if error.connector is not None:
            error.connector = self.mask_data(error.connector)

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


def changed_texts(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """What a configuration holds that it did not hold before. Each text that changed counts:
    nothing says which of them are secret."""
    return _texts(after) - _texts(before)


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
        forms |= _in_base64(value.encode("utf-8", "surrogatepass"))
        forms.add(re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), encoded))
    return {form for form in forms if len(form) >= SHORTEST}


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        value = cast(dict[str, Any], value).values()
    elif not isinstance(value, list):
        return set()
    return set[str]().union(*map(_texts, cast(Iterable[Any], value)))


def _in_base64(value: bytes) -> set[str]:
    """The characters that this value alone decides, at each of the three places where it can begin
    in a group of three bytes."""
    if len(value) < _SHORTEST_ENCODED:
        return set()
    found: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(bytes(before) + value).decode()[first:last])
    return found

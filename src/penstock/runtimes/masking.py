"""Masks secrets in text: replaces every given secret value by ``****`` (L10).

Takes whole lines, so that a secret which two reads split is still masked; a line that must be cut
is cut where :meth:`Masker.safe_cut` says.

A secret is masked in these forms: as it is, each long line of a value of several lines (a private
key), JSON-escaped once and twice, as Python's ``repr`` shows it, URL-encoded, and in base64 with
other text around it (``user:password`` of ``Authorization: Basic``). A secret that the connector
hashed, encoded otherwise or cut in pieces is not. Not here: which values are secret
(``protocols.json_schema.config_check``); records, which are data and never masked.
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
"""Characters; shorter values are not masked: masking each ``1`` or ``no`` of a log hides nothing
and makes the log unreadable."""
_SHORTEST_LINE = 8
_SHORTEST_ENCODED = 6
"""Bytes; of the base64 of a shorter secret too few characters are independent of its neighbours."""


class Masker:
    """Masks secrets in text (``mask``), JSON data (``mask_data``) and exceptions (``errors``). Text
    without a secret costs one search. Any thread may use it and add to it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._adding = threading.Lock()
        self._longest = 0
        self._every: re.Pattern[str] | None = None
        self._any: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Adds secrets to mask from now on."""
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
        """Returns the text with each secret, or run of overlapping ones, replaced by ``****``."""
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
        """Returns the same JSON data with its strings masked, keys included."""
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
        """Masks a ``PenstockError`` that is raised inside, and raises it on."""
        try:
            yield
        except PenstockError as e:
            self.mask_error(e)
            raise

    def mask_error(self, error: PenstockError) -> None:
        """Masks an error's message, hint and connector messages in place."""
        error.message = self.mask(error.message)
        error.args = (error.message,)
        if error.hint is not None:
            error.hint = self.mask(error.hint)
        if error.connector is not None:
            error.connector = self.mask_data(error.connector)

    def safe_cut(self, text: str) -> int:
        """Returns the last index at which an unfinished line may be cut without cutting a secret,
        also one whose end has not been read yet; 0: nowhere."""
        cut = len(text) - max(self._longest - 1, 0)
        if cut <= 0:
            return 0
        for start, stop in self._spans(text):
            if start < cut < stop:
                return start
        return cut

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the merged (start, end) of all secrets in the text, in order."""
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
    """Returns the texts that the configuration ``after`` holds and ``before`` does not. All of them
    count as secrets, since nothing marks which are."""
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
    """Returns the base64 of a value without the characters that its neighbours change too, for each
    of the three positions at which it can begin in a group of three bytes."""
    if len(value) < _SHORTEST_ENCODED:
        return set()
    found: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(bytes(before) + value).decode()[first:last])
    return found

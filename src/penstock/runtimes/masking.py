"""Masks secrets in text: replaces every given secret value by ``****`` (L10).

Takes whole lines, so that a secret split by two reads is still masked; :meth:`Masker.safe_cut`
decides where a line may be cut.

Masks the forms of ``secret_forms``. Not here: which values are secret
(``protocols.json_schema.config_check``); records, which are data and never masked.
"""

import re
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from penstock.errors import PenstockError
from penstock.runtimes.secret_forms import forms_of

MASK = "****"


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
            forms = self._forms.union(*map(forms_of, secrets))
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
            self._any = re.compile(listed)  # set last: where it matches, the other is needed

    def __bool__(self) -> bool:
        return self._any is not None

    @property
    def longest_without(self) -> int | None:
        """Returns the length up to which a text is too short for any secret; None: there are no
        secrets."""
        return min(map(len, self._forms)) - 1 if self._forms else None

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
        """Masks a ``PenstockError`` that is raised inside, and re-raises it."""
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


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        value = cast(dict[str, Any], value).values()
    elif not isinstance(value, list):
        return set()
    return set[str]().union(*map(_texts, cast(Iterable[Any], value)))

r"""Lists the forms in which a connector prints a secret, for ``masking`` (L10).

A secret is masked

- as it is, and each long line of a value of several lines (a private key);
- escaped: in JSON once and twice, as serializers of other languages write it too (``\/``,
  ``\u0026``); as ``repr`` of Python shows text and bytes (``b'...'``), once and inside JSON; with
  quotes escaped by a backslash; quoted for a shell; in XML and HTML;
- URL-encoded, once and twice;
- in base64 with other text around it (``user:password`` of ``Authorization: Basic``), and in
  hexadecimal digits;
- spread: as a list of its characters or of its bytes (Python's and JSON's).

A secret is not masked where the connector hashed or encrypted it, encoded it otherwise (base32,
UTF-16, escaped three times), reversed it, or sent its pieces in several messages or lines.
"""

import base64
import html
import json
import re
import shlex
from urllib.parse import quote, quote_plus

SHORTEST = 3
"""Characters; shorter values are not masked: masking each ``1`` or ``no`` of a log hides nothing
and makes the log unreadable."""
_SHORTEST_LINE = 8
_SHORTEST_ENCODED = 6
"""Bytes; a shorter secret has too few base64 characters that do not depend on its neighbours, and
its hexadecimal digits may be those of a number."""
_LONGEST_SPREAD = 1024
"""Characters; the list of a longer one would be longer than a line that is held back whole
(``stderr.LINE_BOUND``)."""
_ESCAPED_BY_SOME = ("[<>&]", "[<>&'=]", "[<>&'=/]")
"""Characters that JSON serializers of other languages escape: Go, Gson, JavaScript in HTML."""


def forms_of(secret: str) -> set[str]:
    """Returns every text to mask for ``secret``; none for one that is too short."""
    if len(secret) < SHORTEST:
        return set()
    values = {secret, secret.strip()}
    if "\n" in secret:
        values.update(line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)
    forms: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogatepass")
        forms |= {value} | _escaped(value, raw) | _in_url(value)
        if len(raw) >= _SHORTEST_ENCODED:
            digits = raw.hex()
            forms |= _in_base64(raw) | {digits, digits.upper()}
        if len(value) <= _LONGEST_SPREAD:
            forms |= _spread(value, raw)
    return {form for form in forms if len(form) >= SHORTEST}


def _escaped(value: str, raw: bytes) -> set[str]:
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_json |= {re.sub(each, _code, form) for form in in_json for each in _ESCAPED_BY_SOME}
    in_json |= {form.replace("/", "\\/") for form in in_json}
    shown = {repr(value)[1:-1], repr(raw)[2:-1], _without_quotes(repr(raw)[2:-1])}
    quoted = {re.sub(r"([\\'])", r"\\\1", value), re.sub(r'([\\"])', r"\\\1", value)}
    in_shell = shlex.quote(value)
    in_shell = in_shell[1:-1] if in_shell != value else value
    in_html = {html.escape(value), html.escape(value, quote=False)}
    in_html |= {
        form.replace("&#x27;", escape) for form in in_html for escape in ("&#39;", "&apos;")
    }
    twice = {json.dumps(form, ensure_ascii=False)[1:-1] for form in in_json | shown}
    twice |= {repr(form)[1:-1] for form in shown}
    return in_json | shown | quoted | {in_shell} | in_html | twice


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _without_quotes(shown: str) -> str:
    """Returns a ``repr`` with the other choice of quotes: Python's depends on what surrounds the
    value."""
    return re.sub(r"(?<!\\)((?:\\\\)*)'", r"\1\\'", shown)


def _in_url(value: str) -> set[str]:
    encoded = quote(value, safe="", errors="surrogatepass")
    lower = re.sub("%[0-9A-F]{2}", lambda m: m[0].lower(), encoded)
    plain = {quote(value, errors="surrogatepass"), quote_plus(value, errors="surrogatepass")}
    return plain | {encoded, lower, quote(encoded, safe=""), quote(lower, safe="")}


def _spread(value: str, raw: bytes) -> set[str]:
    """Returns the lists of a value's characters and bytes, without the brackets."""
    lists = (
        list(value),
        [value[i : i + 1].encode("utf-8", "surrogatepass") for i in range(len(value))],
    )
    forms = {repr(each)[1:-1] for each in lists}
    for items in (list(value), list(raw)):
        forms |= {json.dumps(items, separators=(f",{blank}", ":"))[1:-1] for blank in ("", " ")}
    forms.add(json.dumps(list(value), ensure_ascii=False)[1:-1])
    return forms if len(value) >= _SHORTEST_ENCODED else {repr(list(value))[1:-1]}


def _in_base64(value: bytes) -> set[str]:
    """Returns the base64 of a value without the characters that its neighbours change too, for each
    of the three positions at which it can begin in a group of three bytes."""
    found: set[str] = set()
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(value)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(bytes(before) + value).decode()[first:last])
    return found

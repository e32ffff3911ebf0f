"""Makes the description of a connector's property safe to show: text, links to web pages, code,
line breaks; every other tag is dropped and every text escaped.

Airbyte's descriptions hold HTML. Pure.
"""

import re
from html import unescape
from html.parser import HTMLParser

from markupsafe import Markup, escape

_LONGEST = 4000
_KEPT = {"b", "strong", "i", "em", "code", "ul", "ol", "li", "p"}
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)
_MARKDOWN = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)|`([^`\n]+)`")


class _Safe(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self.out.append("<br>")
        elif tag == "a":
            address = next((v for k, v in attrs if k == "href" and v), "") or ""
            if _ADDRESS.fullmatch(unescape(address).strip()):
                self.out.append(f'<a href="{escape(address.strip())}" {_REL}>')
                self._open.append("a")
        elif tag in _KEPT:
            self.out.append(f"<{tag}>")
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open:
                closed = self._open.pop()
                self.out.append(f"</{closed}>")
                if closed == tag:
                    break

    def handle_data(self, data: str) -> None:
        at = 0
        for match in _MARKDOWN.finditer(data) if "a" not in self._open else ():
            self.out.append(str(escape(data[at : match.start()])))
            if match[3] is not None:
                self.out.append(f"<code>{escape(match[3])}</code>")
            else:
                self.out.append(f'<a href="{escape(match[2])}" {_REL}>{escape(match[1])}</a>')
            at = match.end()
        self.out.append(str(escape(data[at:])))

    def close(self) -> None:
        super().close()
        self.out += [f"</{tag}>" for tag in reversed(self._open)]
        self._open.clear()


_REL = 'rel="noopener noreferrer nofollow" target="_blank"'


def rich_text(text: object) -> Markup:
    """Returns the text of a ``description`` as safe HTML."""
    if not isinstance(text, str):
        return Markup("")
    parser = _Safe()
    parser.feed(text[:_LONGEST])
    parser.close()
    return Markup("".join(parser.out))

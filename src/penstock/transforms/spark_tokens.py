"""Cuts a Spark SQL query into tokens as Spark's own lexer does: words, names, texts, signs.

Text that is a comment or a string to one lexer and code to the other would hide code, so everything
that the two might read differently is refused: a comment inside a comment, a dollar quote, an
address, a variable that Spark replaces before it parses. Pure. Not here: which tokens are refused
(``spark_sql``). Source: Spark 4.1, ``SqlBaseLexer.g4``."""

import re
from enum import StrEnum

import msgspec


class TokenKind(StrEnum):
    """``word``: a keyword, an identifier or a number; ``text``: a quoted string; ``sign``: any
    other character."""

    word = "word"
    quoted = "quoted"  # in backticks
    text = "text"
    sign = "sign"


class Token(msgspec.Struct, frozen=True):
    """One token. ``end``: the index in the query just after it."""

    kind: TokenKind
    text: str
    end: int

    @property
    def name(self) -> str:
        """The token without its quotes, in capitals, as Spark compares words (it takes \u017f for
        an S)."""
        if self.kind in (TokenKind.word, TokenKind.sign):
            return self.text.upper()
        quote = self.text[-1]
        return self.text[self.text.index(quote) + 1 : -1].replace(quote * 2, quote).upper()


_TOKENS = re.compile(
    r"""
    (?P<skipped> \s+ | --(?:\\\n|[^\r\n])* | /\*(?!\+).*?\*/ )
    | (?P<unclosed> /\*(?!\+) )
    | (?P<address> [^\W\d_]+:// )
    | (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:''|\\.|[^'\\])*' | "(?:""|\\.|[^"\\])*" )
    | (?P<quoted> `(?:``|[^`])*` )
    | (?P<word> \d+[eE][+-]\d+(?:[bB]?[dD]|[fF])? | \w+ )
    | (?P<sign> \*/ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
"""A comment goes on behind a backslash at the end of its line; ``/*+`` begins a hint, which is
code; ``r'`` begins a text only if no word precedes it; text after ``a://`` belongs to that word."""


def tokenize(query: str) -> tuple[list[Token], str | None]:
    """Returns the query's tokens without comments, and why the query is refused (None: it is not);
    no tokens if it is."""
    if "${" in query:
        return [], "refused: Spark would replace ${...} by settings and variables of this machine"
    tokens: list[Token] = []
    for match in _TOKENS.finditer(query):
        kind, text = match.lastgroup, match.group()
        if kind == "skipped":
            if text.startswith("/*") and "/*" in text[2:]:
                return [], "refused: a comment inside a comment"
        elif kind == "unclosed":
            return [], "refused: a comment that does not end"
        elif kind == "address" or text == "$":
            return [], f"refused: {text} outside of quotes"
        elif kind is not None:
            tokens.append(Token(TokenKind(kind), text, match.end()))
    return tokens, None

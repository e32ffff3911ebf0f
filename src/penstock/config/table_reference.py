"""Splits a ``use`` that names a table and its place (``parquet:./lake``) into format and config.

Not here: the names of connectors (``connectors.reference``).
"""

TABLES = {"parquet": "path", "delta": "path"}
"""The table formats, each with the config key of its place."""


def split_table(use: str) -> tuple[str, str, str] | None:
    """(format, config key, place) of ``parquet:./lake``; None where ``use`` is not a table format
    with a place."""
    table, colon, place = use.partition(":")
    if not colon or table not in TABLES:
        return None
    return table, TABLES[table], place


def without_password(url: str) -> str:
    """``url`` without password and query, safe to show and to hash (L10)."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    login, at, host = authority.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}{slash}{path}"

"""``use``: splitting what names a table and its place (``parquet:./lake``) into the table and its
config. What names a connector is left as it is written: ``connectors`` reads it.
"""

TABLES = {"parquet": "path", "delta": "path"}
"""Tables that Spark writes, and the key of their config that says where."""


def split_table(use: str) -> tuple[str, str, str] | None:
    """(table, config key, place) of ``parquet:./lake``; None where ``use`` names no table together
    with its place."""
    table, colon, place = use.partition(":")
    if not colon or table not in TABLES:
        return None
    return table, TABLES[table], place


def without_password(url: str) -> str:
    """A URL that may be shown and hashed: no password, no query."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    login, at, host = authority.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}{slash}{path}"

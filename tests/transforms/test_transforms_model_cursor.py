"""``transforms.model_cursor``: which queries are proved to send no row at the saved cursor."""

import pytest

from penstock.transforms.model_cursor import begins_after

AFTER = "WHERE :cursor IS NULL OR at > :cursor"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT * FROM users {AFTER}",
        f"SELECT id, at FROM db.users {AFTER} ORDER BY at",
        f"select id, AT from users u {AFTER.replace('at', 'At')} limit 5",
        "SELECT u.at, u.id FROM users u WHERE :cursor IS NULL OR u.at > :cursor",
        "SELECT * FROM users WHERE (:cursor IS NULL OR at > :cursor) AND NOT gone",
        f"SELECT * FROM users {AFTER} AND kind = 'OR' -- or at >= :cursor",
        "SELECT * FROM parquet.`./users` WHERE :cursor IS NULL OR `at` > :cursor",
    ],
)
def test_a_strict_comparison_is_proved(query: str) -> None:
    assert begins_after(query, "at")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM users WHERE :cursor IS NULL OR at >= :cursor",
        "SELECT * FROM users WHERE :cursor IS NULL OR at > :cursor - INTERVAL 1 HOUR",
        "SELECT * FROM users WHERE :cursor IS NULL OR at > :cursor OR late",
        "SELECT * FROM users WHERE :cursor IS NULL OR at > :cursor AND a OR b",
        "SELECT * FROM users WHERE (:cursor IS NULL OR at > :cursor) OR late",
        "SELECT * FROM users WHERE late OR (:cursor IS NULL OR at > :cursor)",
        "SELECT * FROM users WHERE NOT (:cursor IS NULL OR at > :cursor)",
        "SELECT * FROM users WHERE :cursor IS NULL OR seen > :cursor",
        "SELECT id, seen AS at FROM users WHERE :cursor IS NULL OR at > :cursor",
        "SELECT id, seen at FROM users WHERE :cursor IS NULL OR at > :cursor",
        "SELECT nested.at FROM users WHERE :cursor IS NULL OR at > :cursor",
        "SELECT date(at) FROM users WHERE :cursor IS NULL OR at > :cursor",
        "SELECT c.* FROM o JOIN c USING (id) WHERE :cursor IS NULL OR at > :cursor",
        "SELECT b.* FROM a, b WHERE :cursor IS NULL OR at > :cursor",
        "SELECT * FROM a UNION ALL SELECT * FROM b WHERE :cursor IS NULL OR at > :cursor",
        "SELECT * FROM users WHERE at > coalesce(:cursor, 0)",
        "SELECT * FROM users WHERE :cursor IS NULL OR at::date > :cursor",
        "SELECT * FROM users WHERE :cursor IS NULL OR at > :cursor AND a = 'x\\' OR b --'",
        "SELECT * FROM users",
        "users",
        "",
    ],
)
def test_what_may_come_again_is_not(query: str) -> None:
    assert not begins_after(query, "at")

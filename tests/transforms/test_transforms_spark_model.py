"""What stands behind `spark:` is read, or refused, without a JVM (issue 12, part 5)."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.transforms.spark_model import model_of

HERE = Path("/home/me")


@pytest.mark.parametrize(
    ("target", "name", "query"),
    [
        ("SELECT 1 AS a", "query", "SELECT 1 AS a"),
        ("WITH t AS (SELECT 1) SELECT * FROM t;", "query", "WITH t AS (SELECT 1) SELECT * FROM t"),
        ("users", "users", "SELECT * FROM users"),
        ("shop.`my users`", "my users", "SELECT * FROM shop.`my users`"),
        ("delta.`./lake/users`", "users", "SELECT * FROM delta.`/home/me/lake/users`"),
        (
            "SELECT * FROM csv.`a.csv` JOIN json.`s3a://b/c` USING (id)", "query",
            "SELECT * FROM csv.`/home/me/a.csv` JOIN json.`s3a://b/c` USING (id)",
        ),
        ("SELECT 'csv.`a.csv`' AS a", "query", "SELECT 'csv.`a.csv`' AS a"),
    ],
)  # fmt: skip
def test_queries_and_tables(target: str, name: str, query: str) -> None:
    model = model_of(target, HERE)
    assert (model.name, model.query) == (name, query)


@pytest.mark.parametrize(
    ("query", "has"),
    [
        ("SELECT * FROM t WHERE :cursor IS NULL OR a > :cursor", True),
        ("SELECT * FROM t WHERE a >:CURSOR", True),
        ("SELECT v:cursor FROM t", False),
        ("SELECT ':cursor' -- :cursor\nFROM t", False),
        ("SELECT a::string FROM t", False),
        ("SELECT * FROM t WHERE (a):cursor > 1", False),
    ],
)
def test_the_parameter_is_found_where_spark_sees_one(query: str, has: bool) -> None:
    assert model_of(query, HERE).cursor is has


def test_files_are_known_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id\n1\n")
    (tmp_path / "active.sql").write_text("SELECT 1 AS a;\n")
    (tmp_path / "marked.sql").write_bytes(
        b"\xef\xbb\xbfSELECT 1 AS a;\r\n"
    )  # as Windows' editors do
    (tmp_path / "users" / "_delta_log").mkdir(parents=True)
    csv = model_of("people.csv", tmp_path)
    assert (csv.name, csv.format, csv.options["header"]) == ("people", "csv", "true")
    query = model_of("./active.sql", tmp_path)
    assert (query.name, query.query) == ("active", "SELECT 1 AS a")
    assert model_of("./marked.sql", tmp_path).query == "SELECT 1 AS a"
    table = model_of("./users", tmp_path, "contacts")
    assert (table.name, table.format, table.tables) == ("contacts", "delta", "delta")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("SELECT 1; SELECT 2", "several statements"),
        ("DROP TABLE users", "not a query"),
        ("SELECT reflect('java.lang.System', 'exit', 1)", "any method of the JVM"),
        ("SELECT TRANSFORM(a) USING 'rm -rf' FROM t", "run a program"),
        ("SELECT * FROM IDENTIFIER('a')", "hides a name"),
        ("SELECT '${env:SECRET}'", "settings and variables"),
        ("/* /* */ SELECT 1 */", "comment"),
        ("./nothing.parquet", "there is no file"),
        ("./query.sql", "cannot be read"),
        (";", "empty"),
    ],
)
def test_what_is_refused(tmp_path: Path, target: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        model_of(target, tmp_path)
    assert told in refused.value.message and refused.value.code == "source.query"

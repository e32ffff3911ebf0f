"""What ``plan`` shows of tables that exist before a pipeline's first load."""

import json
from pathlib import Path

import pytest
from cli_harness import Cli

PIPELINE = """pipeline: shop
source:
  use: "spark:./users.csv"
  streams: [{{name: users{mode}}}]
destination: {{use: "{format}:./lake"}}
"""


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("", "the rows there are replaced"),
        (", mode: append", "the rows there stay, and rows are added"),
        (", mode: upsert, primary_key: id", "and those of a key that comes are replaced"),
    ],
    ids=["overwrite", "append", "upsert"],
)
@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_l8_a_table_that_others_wrote_is_named(
    cli: Cli, tmp_path: Path, format: str, mode: str, rows: str
) -> None:
    (tmp_path / "users.csv").write_text("id,v\n1,a\n")
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.format(format=format, mode=mode))

    def notes() -> list[str]:
        found = json.loads(cli("plan", str(file), "--json").out)["notes"]
        return [note for note in found if "knows no load" in note]

    assert notes() == []
    table = tmp_path / "lake" / "users"
    table.mkdir(parents=True)
    assert notes() == []
    (table / "part-0.parquet").write_bytes(b"")
    (note,) = notes()
    assert rows in note and str(tmp_path / "lake") in note

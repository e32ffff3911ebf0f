"""Reads the orders of a folder of JSON lines files, newest changes only: a whole source."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from penstock.sdk import Connector, StreamReader, run


class Config(TypedDict):
    folder: str


class Order(TypedDict):
    id: int
    total: float
    changed: str


class Orders(StreamReader):
    name, row, primary_key, cursor = "orders", Order, ["id"], "changed"

    def read(self, since: str | None) -> Iterator[Any]:
        for file in sorted(Path(self.config["folder"]).glob("*.jsonl")):
            rows = map(json.loads, file.read_text().splitlines())
            yield from (row for row in rows if since is None or row["changed"] > since)


def check(config: Config) -> None:
    if not Path(config["folder"]).is_dir():
        raise ValueError(f"{config['folder']} is no folder")


CONNECTOR = Connector(description="orders", credentials=Config, sources=[Orders], check=check)

if __name__ == "__main__":
    run(CONNECTOR)

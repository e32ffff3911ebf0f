"""A destination of ``penstock.sdk`` that keeps the last ``seq`` of a row in its store.

Credentials: ``journal``, a file for what it finds first; ``fail``, a ``seq`` that it rejects.
"""

import json
import os
import sys
from typing import Any, TypedDict

from penstock.sdk import Connector, StreamWriter, run


class Credentials(TypedDict, total=False):
    journal: str
    fail: int


class Contacts(StreamWriter):
    name, row, batch_size = "contacts", {"type": "object"}, 10

    def open(self) -> None:
        found = {"found": self.sync.store.get(["last"]), "sync": self.sync.sync_id}
        with open(self.sync.credentials["journal"], "a") as file:
            file.write(json.dumps(found) + "\n")
        print("the address is", os.environ.get("RPC_URL"))
        print("the secret is", os.environ.get("RPC_SECRET"), file=sys.stderr)

    def write(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["seq"] == self.sync.credentials.get("fail"):
                self.reject(row, "as it was told")
        self.sync.store.set(["last"], rows[-1]["seq"])


class Orders(Contacts):
    name = "orders"


CONNECTOR = Connector(description="stored", credentials=Credentials, streams=[Contacts, Orders])

if __name__ == "__main__":
    run(CONNECTOR)

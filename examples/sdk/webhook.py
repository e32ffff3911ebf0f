"""Sends contacts to an HTTP address, in batches of 100: a whole destination."""

import json
from typing import TypedDict
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from penstock.sdk import Connector, RateLimitError, StreamWriter, run


class Credentials(TypedDict):
    url: str


class Contact(TypedDict):
    id: int
    email: str


class Contacts(StreamWriter):
    name, row, batch_size = "contacts", Contact, 100

    def write(self, rows: list[Contact]) -> None:
        body = json.dumps(rows).encode()
        headers = {"Content-Type": "application/json"}
        try:
            urlopen(Request(self.sync.credentials["url"], body, headers), timeout=30).close()
        except HTTPError as e:
            if e.code == 429:
                raise RateLimitError("the address refuses for now", headers=e.headers) from e
            raise


CONNECTOR = Connector(description="webhook", credentials=Credentials, streams=[Contacts])

if __name__ == "__main__":
    run(CONNECTOR)

"""Adds the domain of each address to its row, and remembers domains it has seen: an enrichment."""

from typing import Any, TypedDict

from penstock.sdk import Connector, Enricher, run


class Options(TypedDict, total=False):
    field: str


class Domains(Enricher):
    options = Options

    def enrich(self, row: dict[str, Any]) -> Any:
        address = row.get(self.sync.options.get("field", "email"))
        if not isinstance(address, str) or "@" not in address:
            return []  # a row without an address is dropped
        domain = address.rpartition("@")[2].lower()
        first = self.sync.store.get(["domain", domain]) is None
        if first:
            self.sync.store.set(["domain", domain], True)
        return {**row, "domain": domain, "is_new": first}


CONNECTOR = Connector(description="domains", enrichment=Domains)

if __name__ == "__main__":
    run(CONNECTOR)

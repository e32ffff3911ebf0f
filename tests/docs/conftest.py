"""A reader's folder, and the servers that pages speak of."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_follow import STUBS, Folder, Heard
from doc_programs import COMPANY, CONTACTS, FAKER_SOURCE, SHOP_SOURCE, TAP


@pytest.fixture
def folder(tmp_path: Path, connector_environments: Path) -> Folder:
    """Empty, with an empty home. What others have built of connectors of the registry is there."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "connectors").symlink_to(connector_environments)
    return Folder(tmp_path)


@pytest.fixture
def equipped(folder: Folder) -> Folder:
    """With a connector behind each path that pages name."""
    for name in ("source", "source-shop", "source-x"):
        folder.python(name, SHOP_SOURCE)
    folder.python("source-faker", FAKER_SOURCE)
    folder.python("source-crm", SHOP_SOURCE.replace('"source_defined_primary_key": [["id"]], ', ""))
    for name in ("tap-shop", "tap-github", "tap-x"):
        folder.python(name, TAP)
    for name in ("crm", "destination"):
        folder.program(name, sys.executable, STUBS / "stub_destination.py")
    folder.python("my-destination", CONTACTS)
    folder.python("company-of", COMPANY)
    return folder


@pytest.fixture
def server() -> Iterator[Heard]:
    with Heard() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()

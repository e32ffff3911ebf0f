"""Doctor's rows for what a dependency's version changes: guards, and versions that were tested."""

import threading
from importlib import metadata
from pathlib import Path

import pytest

from penstock.codec import duckdb_call
from penstock.config.home import Home
from penstock.config.packages import install
from penstock.engine.inspect import doctor
from penstock.engine.inspect.doctor import examine
from penstock.engine.inspect.machine_checks import DoctorCheck

BOUND = next(r for r in metadata.requires("penstock") or () if r.startswith("duckdb"))


def row(name: str, home: Path) -> DoctorCheck:
    return next(c for c in examine(Home(home)) if c.name == name)


def test_a_guard_that_fires_is_a_row_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row("duckdb", tmp_path).ok
    monkeypatch.setattr(duckdb_call, "RAW_NUMBERS", "BIGINT")  # as DuckDB 2.0.1 reads numbers
    monkeypatch.setattr(duckdb_call, "_root", None)
    monkeypatch.setattr(duckdb_call, "_local", threading.local())
    found = row("duckdb", tmp_path)
    assert not found.ok and "does not keep the digits of JSON numbers" in found.detail
    assert found.fix == install(BOUND)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.0", ""),
        ("2.0.0", ""),
        ("2.0.1", "duckdb 2.0.1 was not tested"),
        ("2.1.0.dev3", "duckdb 2.1.0.dev3 was not tested"),
        ("1.9.9", "duckdb 1.9.9 was not tested"),
        (None, "duckdb is not installed"),
    ],
)
def test_a_package_beyond_its_bounds_is_a_row_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, said: str
) -> None:
    real = metadata.version

    def installed(name: str) -> str:
        if name != "duckdb":
            return real(name)
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(doctor.metadata, "version", installed)
    found = row("packages", tmp_path)
    assert found.ok is not said.startswith("duckdb"), found
    assert said in found.detail
    assert found.fix == (install(BOUND) if said else None)

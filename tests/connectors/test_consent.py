"""A component that asks for much needs the user's yes before any of its code is run (L10)."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config.home import Home
from penstock.config.load import parse_pipeline
from penstock.config.sections import NetworkPermissions, Permissions
from penstock.connectors.destination import DestinationConnector
from penstock.connectors.resolve import resolve
from penstock.connectors.source import SourceConnector
from penstock.engine.inspect.plan_check import consents
from penstock.errors import ConfigError, SourceError

sys.path.insert(0, str(Path(__file__).parents[1] / "protocols" / "rapidbyte"))

from test_rapidbyte_manifest import with_manifest

ANY_HOST = {"network": {"allowed_domains": ["*"]}}


def component(folder: Path, name: str = "x.wasm", **changes: Any) -> Path:
    """One that cannot be compiled: whoever would run it fails in another way."""
    file = folder / name
    file.write_bytes(with_manifest(permissions=ANY_HOST, **changes))
    return file


def source(file: Path, home: Path, permissions: Permissions | None = None) -> SourceConnector:
    return resolve(
        SourceConnector, f"rapidbyte:{file}", home / "connectors", permissions=permissions
    )


def test_none_of_its_code_runs_before_the_yes_which_is_for_that_file(tmp_path: Path) -> None:
    file = component(tmp_path)
    found = source(file, tmp_path)
    for ask in (lambda: found.discover({}), lambda: found.check({}), found.launch):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert caught.value.code == "connector.consent"
        assert caught.value.problems == [f"rapidbyte:{file} requests every host on the network (*)"]
        assert "--yes" in (caught.value.hint or "")
        assert "permissions.network.allowed_hosts" in (caught.value.hint or "")
    assert next(a.value for a in found.asks()) == ("*",), "shown all the same"
    request = found.consent_request()
    assert request is not None
    request.agree()
    assert stat.S_IMODE(Path(request.file).stat().st_mode) == 0o600
    with pytest.raises(SourceError):  # now it would be run
        source(file, tmp_path).discover({})
    source(file, tmp_path).launch()
    component(tmp_path, version="9.9.9")
    with pytest.raises(ConfigError):
        source(file, tmp_path).launch()
    with pytest.raises(ConfigError):
        resolve(DestinationConnector, f"rapidbyte:{file}", tmp_path / "connectors").launch()


def test_what_the_pipeline_names_needs_no_other_yes(tmp_path: Path) -> None:
    said = Permissions(network=NetworkPermissions(allowed_hosts=("db.corp",)))
    source(component(tmp_path), tmp_path, said).launch()


def test_what_the_components_of_a_pipeline_ask_for(tmp_path: Path) -> None:
    text = (
        f"pipeline: p\nsource: {{ use: '{component(tmp_path)}' }}\n"
        f"transforms: [{{ use: '{component(tmp_path, 'y.wasm', version='2')}' }},"
        " { use: transform-sql, config: { query: SELECT 1 } }]\n"
        "destination: { use: 'parquet:./lake' }\n"
    )
    home = Home(tmp_path / "home")
    found = consents(parse_pipeline(text, {}), home)
    assert [request.asks for request in found] == [("every host on the network (*)",)] * 2
    found[0].agree()
    assert [w.connector for w in consents(parse_pipeline(text, {}), home)] == [found[1].connector]

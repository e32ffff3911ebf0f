"""A component that asks for much: shown, asked about once, refused in a script (exit code 2)."""

import json
import sys
from pathlib import Path

from cli_harness import Cli

sys.path.insert(0, str(Path(__file__).parents[1] / "protocols" / "rapidbyte"))

from test_rapidbyte_manifest import with_manifest


def test_a_component_that_asks_for_every_host(cli: Cli, tmp_path: Path) -> None:
    """It cannot be compiled: what is refused before that has run none of it."""
    file = tmp_path / "x.wasm"
    file.write_bytes(with_manifest(permissions={"network": {"allowed_domains": ["*"]}}))
    use = f"rapidbyte:{file}"
    planned = cli("plan", use, f"parquet:{tmp_path}/lake", "--json")
    answer = json.loads(planned.out)
    assert planned.code == 2
    assert answer["problems"] == [f"{use} requests every host on the network (*)"]
    (first, *_) = answer["asks"]["source"]
    assert first == {"name": "network.allowed_domains", "value": ["*"], "rule": "manifest"}
    ran = cli("run", use, f"parquet:{tmp_path}/lake")
    assert ran.code == 2
    assert "requests every host on the network" in ran.err and "--yes" in ran.err
    assert cli("discover", use).code == 2
    agreed = cli("discover", use, "--yes")
    assert agreed.code != 2 and f"{use}: agreed to every host" in agreed.err
    assert cli("discover", use).code == agreed.code, "remembered"


def test_a_manifest_s_text_cannot_hide_a_line(cli: Cli, tmp_path: Path) -> None:
    """Escape sequences and line breaks of a path would overwrite what is asked for."""
    file = tmp_path / "x.wasm"
    hidden = "/x\x1b[1A\x1b[2K\r\n\u202e/.."
    file.write_bytes(with_manifest(permissions={"fs": {"preopens": [hidden]}}))
    use = f"rapidbyte:{file}"
    for said in (cli("plan", use, f"parquet:{tmp_path}/lake"), cli("discover", use, "--yes")):
        assert "\x1b" not in said.out + said.err and "\u202e" not in said.out + said.err
        (line,) = [x for x in (said.out + said.err).splitlines() if "the root folder" in x]
        assert "2K" in line

"""What Syncmaven destinations store, over the state RPC that a run opens for them (issue 12, part
3): one of ``penstock.sdk``, and one on the real node CDK."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from connector_sites import stub
from pipelines import NAME, Ran, Site

from penstock.model.catalog import StreamId

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MakeSite = Callable[..., Site]
CDK = "@syncmaven/node-cdk@0.0.11"
SDK = stub("stub_stored.py")
OF_S0 = ("path", StreamId(None, "s0").key)

NODE = """
const fs = require("fs");
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "stored", credentialsType: z.object({ journal: z.string() }), defaultStream: "contacts",
  streams: [{ name: "contacts", rowType: z.object({}).passthrough(),
    createOutputStream: async (config, ctx) => {
      const key = [`syncId=${config.syncId}`, "last"];
      const found = await ctx.store.get(key);
      const said = { found: typeof found === "number" ? found : null, sync: config.syncId };
      fs.appendFileSync(config.credentials.journal, JSON.stringify(said) + "\\n");
      return { handleRow: async (row) => { await ctx.store.set(key, row.seq); } };
    },
  }],
});
"""


class Stored:
    """A site whose destination stores the last row that it got."""

    def __init__(self, site: Site, command: str) -> None:
        self.site, self._command = site, command
        self._journal = site.folder / "journal-of-the-destination.jsonl"

    def parts(self, **more: Any) -> dict[str, Any]:
        config = {"journal": str(self._journal), **more.pop("config", {})}
        use = f"syncmaven:{self._command}"
        return {"destination": {"use": use, "config": config, "stream": "contacts", **more}}

    def run(self, records: int = 100, *, full_refresh: bool = False, **more: Any) -> Ran:
        stub = {"records": records}
        return self.site.run(stub, full_refresh=full_refresh, **self.parts(**more))

    def found(self) -> list[int | None]:
        """What each process found in the store at its start."""
        lines = [json.loads(line) for line in self._journal.read_text().splitlines()]
        assert {line["sync"] for line in lines} == {f"{NAME}/s0"}
        return [line["found"] for line in lines]

    def keys(self) -> list[tuple[str, str, str]]:
        """(scope, owner, value) of the durable keys."""
        with self.site.store() as store:
            found = store.connector_keys(NAME)
        return [(place.scope, place.owner, value) for place, value in found.items()]


@pytest.fixture
def there(site: MakeSite) -> Stored:
    return Stored(site(streams=1), SDK)


def test_l10_what_a_run_stored_the_next_one_finds_and_it_is_shown_and_reset(there: Stored) -> None:
    first = there.run(checkpoint_every=40)
    assert first.status == "succeeded", first.error
    assert there.found() == [None, 40, 80], "a stream has one store over its processes"
    assert there.keys() == [(*OF_S0, "100")]
    said = "\n".join(text for _, _, text in first.heard.lines)
    assert "the address is http://127.0.0.1:" in said and "/****" in said
    assert "the secret is ****" in said
    second = there.run(130)
    assert second.counts("s0") == ("complete", 30, 30, 0), second.error
    assert there.run(130, full_refresh=True).status == "succeeded"
    assert there.found()[3:] == [100, None], "what is read anew finds no store of before"
    shown = there.site.cli("state", "show", NAME, "--json")
    (key,) = shown.json["connector_keys"]
    assert (key["scope"], key["value"]) == ("path", "130"), shown.out + shown.err
    assert there.site.cli("state", "reset", NAME, "--stream", "s0").code == 0
    assert there.keys() == []


def test_what_a_failed_stream_stored_is_gone_and_what_was_acknowledged_is_kept(
    there: Stored,
) -> None:
    """L1: the store is never ahead of the rows."""
    failed = there.run(config={"fail": 7})
    assert failed.error["code"] == "destination.rows_failed", failed.error
    assert there.keys() == []
    assert there.run().status == "succeeded"
    assert there.found() == [None, None]
    assert there.keys() == [(*OF_S0, "100")]
    assert there.run(130, config={"fail": 107}).status == "failed"
    assert there.keys() == [(*OF_S0, "100")]


def test_what_a_run_stored_that_is_killed_before_its_ack_is_settled_is_gone(
    there: Stored,
) -> None:
    path = there.site.write({"records": 100}, **there.parts())
    killed = there.site.cli("run", str(path), PENSTOCK_FAILPOINT="before-settle")
    assert killed.code == -9, killed.out + killed.err
    assert (there.found(), there.keys()) == ([None], [])
    assert there.run().status == "succeeded"
    assert there.found() == [None, None]
    assert there.keys() == [(*OF_S0, "100")]


# -- real


@pytest.mark.network
def test_a_destination_on_the_real_node_cdk_finds_what_it_stored(
    site: MakeSite, tmp_path: Path
) -> None:
    npm = shutil.which("npm")
    assert npm is not None, "Node.js and npm are needed"
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "stored", "private": true}')
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=300)
    (folder / "main.js").write_text(NODE)
    there = Stored(site(streams=1), shlex.join(["node", str(folder / "main.js")]))
    first = there.run(checkpoint_every=60)
    assert first.status == "succeeded", first.error
    assert there.run(130).status == "succeeded"
    assert there.found() == [None, 60, 100]
    assert there.keys() == [(*OF_S0, "130")]

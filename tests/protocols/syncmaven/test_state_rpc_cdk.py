"""The state RPC is driven by the store of the real node CDK (issue 12: must be shown)."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.model.catalog import StreamId
from penstock.protocols.syncmaven.state_rpc import StateServer
from penstock.sdk.testing import ScriptedHost
from penstock.store.keys import MemoryKeys

pytestmark = pytest.mark.network
CDK = "@syncmaven/node-cdk@0.0.11"

DESTINATION = """
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "stored", credentialsType: z.object({}), defaultStream: "rows",
  streams: [{ name: "rows", rowType: z.object({}).passthrough(),
    createOutputStream: async (config, ctx) => ({
      handleRow: async (row) => {
        const s = ctx.store, said = [];
        const say = (what) => said.push(what);
        try {
          for (const [call, ...args] of row.calls) {
            if (call === "stream") { const all = []; await s.stream(args[0], (e) => all.push(e));
              say(all); }
            else if (call === "streamBatch") { const sizes = [];
              await s.streamBatch(args[0], (b) => sizes.push(b.length), args[1]); say(sizes); }
            else say(await s[call](...args));
          }
          console.log("SAID " + JSON.stringify(said));
        } catch (e) { console.log("THREW " + e.message); }
      },
    }),
  }],
});
"""


@pytest.fixture(scope="module")
def destination(tmp_path_factory: pytest.TempPathFactory) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm")
    folder = tmp_path_factory.mktemp("cdk")
    (folder / "package.json").write_text('{"name": "stored", "private": true}')
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    subprocess.run(install, cwd=folder, check=True, capture_output=True, timeout=300)
    (folder / "index.js").write_text(DESTINATION)
    return folder / "index.js"


def said(destination: Path, environment: dict[str, str], *calls: list[Any]) -> Any:
    node = shutil.which("node")
    assert node is not None
    host = ScriptedHost([node, str(destination)], environment=environment, timeout=60)
    outcome = host.sync([{"calls": calls}], stream="rows", sync_id="s1")
    assert outcome.result is not None, outcome
    (told,) = [text for _, text in outcome.logs if text.startswith(("SAID ", "THREW "))]
    return json.loads(told[5:]) if told.startswith("SAID ") else told


@pytest.mark.parametrize("shown", ["RPC_TOKEN", "the path"])
def test_every_call_of_the_cdks_store(destination: Path, shown: str) -> None:
    """With the bearer that it sends where it is given one, and without."""
    with StateServer(MemoryKeys(), stream=StreamId(None, "rows")) as server:
        given = server.environment()
        environment = {k: v for k, v in given.items() if k in ("RPC_URL", shown)}
        key = ["syncId=s1", "a"]
        entries = [{"key": ["syncId=s1", "a"], "value": {"x": 1}}]
        entries += [{"key": ["syncId=s1", "b", str(n)], "value": n} for n in range(3)]
        found = said(
            destination,
            environment,
            ["get", key],
            ["set", key, {"x": 1}],
            ["get", key],
            *(["set", ["syncId=s1", "b", str(n)], n] for n in range(3)),
            ["set", "syncId=s10", "é🐟"],
            ["get", ["syncId=s10"]],
            ["get", ["syncId=s1", "b", "0"]],
            ["list", ["syncId=s1"]],
            ["stream", "syncId=s1"],
            ["streamBatch", "syncId=s1", 3],
            ["size", "syncId=s1"],
            ["del", key],
            ["get", key],
            ["deleteByPrefix", ["syncId=s1", "b"]],
            ["size", ["syncId=s1"]],
            ["size", ["syncId=s10"]],
            ["list", ["syncId=s1"]],
        )
    done, gone = {}, {"rowsDeleted": 1}
    assert found[:7] == [{}, done, {"x": 1}, done, done, done, done]
    assert found[7:9] == ["é🐟", 0]
    assert found[9:13] == [entries, entries, [3, 1], 4]
    assert found[13:] == [gone, {}, {"rowsDeleted": 3}, 0, 1, []]


def test_l10_a_cdk_with_a_wrong_secret_is_refused(destination: Path) -> None:
    keys = MemoryKeys()
    with StateServer(keys, stream=StreamId(None, "rows")) as server:
        given = server.environment()
        wrong = {"RPC_URL": given["RPC_URL"], "RPC_TOKEN": "wrong"}
        bare = {"RPC_URL": given["RPC_URL"].rpartition("/")[0]}
        for environment in (wrong, bare):
            told = said(destination, environment, ["set", "a", 1])
            assert told.startswith("THREW ") and "secret" in told
        assert said(destination, given, ["get", "a"]) == [{}]

"""Rows into Syncmaven destinations, through Spark (issue 12): one written on the real node CDK, and
one that misbehaves as it is told to."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from connector_sites import stub
from pipelines import NAME, Heard, Ran, Site

from penstock.config.load import load_pipeline
from penstock.engine.inspect.plan_check import plan_pipeline
from penstock.engine.inspect.runs import rejects
from penstock.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MakeSite = Callable[..., Site]
CDK = "@syncmaven/node-cdk@0.0.11"
ONE = {"streams": 1}

NODE_DESTINATION = """
const fs = require("fs");
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "kept",
  credentialsType: z.object({ file: z.string(), fail: z.number().optional() }),
  defaultStream: "contacts",
  streams: [{
    name: "contacts",
    rowType: z.object({ id: z.number().int(), email: z.string().email() }),
    streamOptions: z.object({ mark: z.string() }),
    createOutputStream: async (config, ctx) => ({
      handleRow: async (row) => {
        if (row.id === config.credentials.fail) throw new Error("no such list");
        fs.appendFileSync(config.credentials.file,
          JSON.stringify({ ...config.options, sync: config.syncId, row }) + "\\n");
      },
      finish: async () => console.log("finished"),
    }),
  }],
});
"""


class Syncmaven:
    """A site whose destination is the stub."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sink = site.folder / "sink.jsonl"

    def run(
        self,
        source: dict[str, Any] | None = None,
        *,
        told: dict[str, Any] | None = None,
        destination: dict[str, Any] | None = None,
        **parts: Any,
    ) -> Ran:
        overrides = {"sink": str(self.sink), **(told or {})}
        use = f"syncmaven:{stub('stub_syncmaven.py', json.dumps(overrides))}"
        section = {"use": use, "config": {}, **(destination or {})}
        return self.site.run(source, destination=section, **parts)

    def rows(self) -> list[int]:
        """``seq`` of every row that was sent, in order."""
        lines = [json.loads(line) for line in self.sink.read_text().splitlines()]
        return [m["payload"]["row"]["seq"] for m in lines if m["type"] == "row"]

    def saved(self) -> int | None:
        return self.site.saved().get("s0", {}).get("seq")


@pytest.fixture
def there(site: MakeSite) -> Syncmaven:
    return Syncmaven(site(**ONE))


def test_a_second_run_sends_only_what_is_new(there: Syncmaven) -> None:
    first = there.run(destination={"stream": "contacts", "checkpoint_every": 30})
    assert (first.status, first.guarantee) == ("succeeded", "at-least-once"), first.error
    assert first.counts("s0") == ("complete", 100, 100, 0)
    assert first.stream("s0").target == "contacts"
    assert (there.rows(), there.saved()) == (list(range(1, 101)), 100)
    second = there.run({"records": 130}, destination={"stream": "contacts"})
    assert second.counts("s0") == ("complete", 30, 30, 0)
    assert there.rows()[100:] == list(range(101, 131))
    third = there.run({"records": 130})
    assert third.counts("s0") == ("complete", 0, 0, 0)
    assert there.saved() == 130


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"halt": {"at": "row", "after": 50}}, "destination.halted"),
        ({"die": {"at": "row", "after": 50}}, "destination.exited"),
        ({"die": {"at": "end-stream", "code": 0}}, "destination.exited"),
        ({"fail": [7]}, "destination.rows_failed"),
    ],
)
def test_what_was_not_counted_is_sent_again_and_no_state_is_ahead(
    there: Syncmaven, told: dict[str, Any], code: str
) -> None:
    """L1, L5, L8."""
    first = there.run(told=told)
    assert (first.status, first.exit_code, first.error["code"]) == ("failed", 5, code)
    assert first.error["hint"]
    assert not [note for note in first.notes if "acks" in note]  # it gives no states back
    assert there.saved() is None
    second = there.run()
    assert second.status == "succeeded", second.error
    assert (second.stream("s0").sent_again, there.saved()) == (100, 100)
    assert set(there.rows()) == set(range(1, 101))


class Page:
    """A site whose destination was written from the page alone; the same one in each run."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.kept, self._told = site.folder / "kept", site.folder / "told.json"

    def run(self, records: int, told: dict[str, Any] | None = None, **destination: Any) -> Ran:
        self._told.write_text(json.dumps({"kept": str(self.kept), **(told or {})}))
        return self.site.run({"records": records}, destination=self._section(destination))

    def plan(self, **destination: Any) -> dict[str, Any]:
        file = self.site.write({}, destination=self._section(destination))
        return plan_pipeline(load_pipeline(file), self.site.home, observer=Heard())

    def _section(self, given: dict[str, Any]) -> dict[str, Any]:
        use = f"syncmaven:{stub('page_destination.py', str(self._told))}"
        return {"use": use, "config": {}, "stream": "contacts", **given}

    def ids(self) -> list[int]:
        return [int(line) for line in self.kept.read_text().split()] if self.kept.exists() else []

    def saved(self) -> int | None:
        return self.site.saved().get("s0", {}).get("seq")


def test_a_destination_written_from_the_page_succeeds_and_is_not_sent_rows_again(
    site: MakeSite,
) -> None:
    """Issue 35, A1; L1. Its exit code counts until it has given a result, in whatever run."""
    page = Page(site(**ONE))
    first = page.run(20)
    assert (first.status, first.exit_code, first.guarantee) == ("succeeded", 0, "at-least-once")
    assert first.noted("exit code 0", "(20 of them)") and page.saved() == 20
    second = page.run(30)
    assert second.counts("s0") == ("complete", 10, 10, 0), second.error
    assert page.ids() == [*range(1, 31)]
    for told in ({"quits_at": 35}, {"halt": {"status": "error"}}, {"code": 1}):
        failed = page.run(40, told)
        assert (failed.exit_code, page.saved()) == (5, 30), told
    before = len(page.ids())
    gave = page.run(40, {"result": {"received": 10, "skipped": 0, "success": 10, "failed": 0}})
    assert (gave.status, page.saved(), page.ids()[before:]) == ("succeeded", 40, [*range(31, 41)])
    for acks in ("echo", "at_end"):
        lacks = page.run(50, acks=acks)
        assert (lacks.exit_code, lacks.error["code"]) == (5, "destination.exited")
        assert page.saved() == 40


def test_at_end_acks_by_exit_code_0_and_plan_says_so(site: MakeSite) -> None:
    """Issue 35, A1: also in the code's dialect, of which a result is wanted else."""
    page = Page(site(**ONE))
    other = {"answer": "stream-spec"}
    assert page.run(20, other).error["code"] == "destination.exited"
    assert page.saved() is None
    ran = page.run(20, other, acks="at_end")
    assert (ran.status, page.saved()) == ("succeeded", 20), ran.error
    assert ran.noted("exit code 0")
    assert any("`acks: at_end`" in note for note in page.plan(acks="at_end")["notes"])
    assert not any("`acks: at_end`" in note for note in page.plan()["notes"])


def test_a_destination_that_halts_with_ok_fails_nothing_and_moves_nothing(
    there: Syncmaven,
) -> None:
    """L5: nor is anything read over what it left."""
    for attempts in (1, 0):
        halted = there.run(told={"halt": {"at": "row", "after": 50, "status": "ok"}})
        assert (halted.status, halted.exit_code) == ("succeeded", 0), halted.error
        assert halted.noted("the destination stopped s0: quota")
        assert (halted.stream("s0").attempts, there.saved()) == (attempts, None)
    assert halted.noted("not read, as the destination did not take")
    before = len(there.rows())
    last = there.run()
    assert (last.status, there.saved()) == ("succeeded", 100), last.error
    assert there.rows()[before:] == list(range(1, 101))


def test_failed_rows_are_found_and_kept_as_rejects(there: Syncmaven) -> None:
    """L8."""
    overrides = {"on_failed_rows": "isolate", "checkpoint_every": 10}
    ran = there.run(told={"fail": [7, 42]}, destination=overrides)
    assert ran.status == "succeeded", ran.error
    assert ran.counts("s0") == ("complete", 100, 98, 2)
    with there.site.store() as store:
        kept = list(rejects(store, there.site.home, NAME))
    assert [json.loads(line["bytes"])["id"] for line in kept] == [7, 42]
    assert "id=7" in kept[0]["reason"]


def test_rows_that_do_not_fit_are_rejects_and_the_others_are_sent(there: Syncmaven) -> None:
    row_type = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 350}}}
    ran = there.run(told={"row_type": row_type})
    assert ran.counts("s0") == ("complete", 100, 50, 50), ran.error
    assert there.rows() == list(range(1, 51))


def _refused(there: Syncmaven, words: str, **parts: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        there.run(**parts)
    assert words in " ".join([refused.value.message, *refused.value.problems])


def test_credentials_options_and_streams_are_refused_before_anything_is_read(
    there: Syncmaven,
) -> None:
    needs = {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}}}
    _refused(there, "key", told={"credentials": needs})
    _refused(there, "no stream 'contact'", destination={"stream": "contact"})
    closed = {"type": "object", "additionalProperties": False}
    _refused(there, "destination.options", told={"options": closed},
             destination={"options": {"a": 1}})  # fmt: skip
    _refused(there, "not a destination", told={"roles": ["enrichment"]})


# -- real


@pytest.fixture(scope="module")
def cdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A destination on the real CDK; its folder."""
    folder = tmp_path_factory.mktemp("node")
    npm = shutil.which("npm")
    assert npm is not None, "Node.js and npm are needed"
    (folder / "package.json").write_text('{"name": "kept", "version": "1.0.0", "main": "main.js"}')
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (folder / "main.js").write_text(NODE_DESTINATION)
    return folder


@pytest.mark.network
def test_a_destination_on_the_real_node_cdk_takes_what_faker_gives(
    site: MakeSite, cdk: Path, connector_environments: Path
) -> None:
    here = site().with_connectors(connector_environments)
    out = here.folder / "kept.jsonl"
    use = f"syncmaven:{shlex.join(['node', str(cdk / 'main.js')])}"
    section: dict[str, Any] = {
        "use": use,
        "config": {"file": str(out)},
        "stream": "contacts",
        "options": {"mark": "m"},
    }
    asked: dict[str, Any] = {
        "use": "airbyte:source-faker@7.2.1",
        "config": {"count": 200, "seed": 1, "parallelism": 1, "always_updated": False},
        "streams": [{"name": "users"}],
    }
    failing = {**section, "config": {"file": str(out), "fail": 5}}
    failed = here.run(destination=failing, **asked)
    assert failed.error["code"] == "destination.rows_failed", failed.error
    assert here.saved() == {}
    out.unlink()
    several = {**section, "checkpoint_every": 90, "parallelism": 2}
    ran = here.run(destination=several, **asked)
    assert ran.status == "succeeded", ran.error
    assert ran.counts("users") == ("complete", 200, 200, 0)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(line["row"]["id"] for line in lines) == list(range(1, 201))
    assert {line["mark"] for line in lines} == {"m"}
    assert {line["sync"] for line in lines} == {f"{NAME}/users"}
    assert lines[0]["row"]["address"]["city"]
    assert here.saved().keys() == {"users"}

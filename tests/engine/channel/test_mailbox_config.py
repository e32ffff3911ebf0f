"""A connector's new configuration in the mailbox: whole, private, and there after a power cut."""

import hashlib
import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from quick_runs import NAME, Bench

from penstock.engine.channel.mailbox import Mailbox, Progress
from penstock.engine.specs.lane import NewConfig
from penstock.errors import LogError
from penstock.store.open import open_store


def test_l10_new_credentials_are_synced_before_and_after_their_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh token that was used once is the only one: losing the new one loses the access."""
    box = Mailbox(tmp_path, "r1")
    box.create()
    synced: list[tuple[bool, bool]] = []
    real = os.fsync

    def watched(fd: int) -> None:
        named = any(box.folder.glob("config-*"))
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), named))
        real(fd)

    monkeypatch.setattr(os, "fsync", watched)
    box.put_progress(1, Progress())
    assert synced == []
    box.put_config(1, 1, NewConfig("h", {"token": "new"}))
    assert synced == [(False, False), (True, True)]
    (found,) = box.configs(1)
    assert found[1].config == {"token": "new"}
    assert stat.S_IMODE(found[0].stat().st_mode) == 0o600


def test_l10_new_credentials_lie_on_no_disk_in_clear(tmp_path: Path) -> None:
    """The log may be storage that others can read; the key is not there."""
    box = Mailbox(tmp_path, "r1", bytes(32))
    box.create()
    token = "a-refresh-token-of-some-length"
    for number in (1, 2):
        box.put_config(1, number, NewConfig("h", {"token": token}))
    written = [p.read_bytes() for p in box.folder.glob("config-*")]
    assert len(written) == 2 and not any(token.encode() in raw for raw in written)
    assert len({raw[48:] for raw in written} | {written[0][:16], written[1][:16]}) == 4
    assert [c.config for _, c in box.configs()] == [{"token": token}] * 2
    with pytest.raises(LogError) as caught:
        list(Mailbox(tmp_path, "r1", bytes([1] * 32)).configs())
    assert caught.value.code == "log.corrupt"
    (first, *_) = sorted(box.folder.glob("config-*"))
    first.write_bytes(first.read_bytes()[:-1] + b"x")
    with pytest.raises(LogError):
        list(box.configs())


def test_the_newest_configuration_is_stored_before_its_files_go(tmp_path: Path) -> None:
    """Epochs and numbers are compared as numbers: the tenth comes after the ninth."""
    box = Mailbox(tmp_path, "r1")
    box.create()
    for epoch in (9, 10):
        for number in (1, 2):
            box.put_config(epoch, number, NewConfig("h", {"token": f"{epoch}.{number}"}))
    told = [c.config["token"] for _, c in box.configs()]
    assert told == ["9.1", "9.2", "10.1", "10.2"]

    def refuses(new: NewConfig) -> None:
        raise LogError("the store is away")

    with pytest.raises(LogError):
        box.take_configs(10, refuses)
    stored: list[NewConfig] = []
    for _ in range(2):
        box.take_configs(10, stored.append)
    assert [c.config["token"] for c in stored] == ["10.2"]
    assert [c.config["token"] for _, c in box.configs()] == ["9.1", "9.2"]


REFRESHING = """
schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
word = next(w for w in sys.argv if w in ("spec", "check", "discover", "read"))
if word == "spec":
    say({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
if word == "discover":
    stream = {"name": "s", "json_schema": schema, "supported_sync_modes": ["full_refresh"]}
    say({"type": "CATALOG", "catalog": {"streams": [stream]}})
if word == "read":
    open(WORLD["seen"], "w").write(json.dumps(given("--config")))
    say({"type": "RECORD", "record": {"stream": "s", "data": {"id": 1}, "emitted_at": 1}})
"""


def test_a_sync_tools_copy_of_a_configuration_is_passed_over(tmp_path: Path) -> None:
    box = Mailbox(tmp_path, "r1")
    box.create()
    box.put_config(1, 1, NewConfig("h", {"token": "new"}))
    (file,) = box.folder.glob("config-*")
    for end in (" (conflicted copy 2026-11-27)", ".sync-conflict-20261127-101010-ABCDEFG"):
        file.with_name(file.name + end).write_bytes(file.read_bytes())
    assert [path for path, _ in box.configs()] == [file]


def test_l10_what_a_dead_driver_did_not_store_is_read_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key outlives the driver, in its store. One that no key opens ends no run."""
    bench = Bench(tmp_path, monkeypatch)
    use = bench.connector(REFRESHING, "airbyte")
    seen = tmp_path / "seen.json"
    bench.set(seen=str(seen))
    config = {"refresh_token": "old"}
    assert bench.run(use, source={"config": config}).exit_code == 0
    store = open_store(bench.home.state_url())
    override = store.config_override(NAME, "mailbox")
    store.close()
    assert override is not None
    key = bytes.fromhex(override[1]["key"])
    assert len(key) == 32
    log = Path(bench.home.log(NAME))
    base = hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()
    for run, its in (("r0", bytes(32)), ("r1", key)):
        box = Mailbox(log, run, its)
        box.create()
        box.put_config(1, 1, NewConfig(base, {"refresh_token": f"new-of-{run}"}))
    assert bench.run(use, source={"config": config}).exit_code == 0
    assert json.loads(seen.read_text()) == {"refresh_token": "new-of-r1"}
    assert not any((log / "mailbox").iterdir())

"""What is said to a container engine, and what becomes of its answers; the engine is a fake."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config.sections import Limits, Permissions
from penstock.errors import ConfigError, DestinationError, PenstockError, SourceError
from penstock.runtimes.container import engine as engines
from penstock.runtimes.container.engine import find_engine
from penstock.runtimes.container.host_address import host_address
from penstock.runtimes.container.image import known_image
from penstock.runtimes.container.orphans import remove_orphans
from penstock.runtimes.container.runtime import ContainerRuntime
from penstock.runtimes.contract import Argument, PrivateFile, RunTimeouts, Start
from penstock.runtimes.masking import Masker

pytestmark = pytest.mark.dear

FAKE = Path(__file__).with_name("fake_engine.py")


class Fake:
    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.says(kind=kind, images={"x:1": {"Entrypoint": ["sh", "-c"], "User": ""}})
        program = folder / "bin" / kind
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FAKE} "$@"\n')
        program.chmod(0o755)

    def says(self, **behaviour: Any) -> None:
        path = self.folder / "engine.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | behaviour))

    def calls(self, verb: str) -> list[list[str]]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [call for line in lines if (call := json.loads(line))[0] == verb]

    def run(self, *arguments: Argument, feed: bytes = b"", **start: Any) -> tuple[bytes, Any]:
        image = known_image(find_engine(), "x:1")
        runtime = ContainerRuntime.of(Start(image=image, **start), image, Masker())
        out = bytearray()
        with runtime.open(arguments, RunTimeouts(stop=1), feed=bool(feed)) as channel:
            if feed:
                channel.write(feed, 10)
                channel.end_input()
            while data := channel.read(30):
                out += data
            return bytes(out), channel.wait(10)


@pytest.fixture(params=["docker", "podman"])
def fake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path, request.param)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CONTAINERS_FAKE", str(tmp_path))
    monkeypatch.setenv(engines.VARIABLE, request.param)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return made


def test_a_run_is_created_started_read_and_removed(fake: Fake) -> None:
    """The exit code is the engine's record, whatever its command line ended with."""
    fake.says(client=0)
    file = PrivateFile("c.json", b"{}")
    assert fake.run('cat; cat "$1"; exit 7', "sh", file, feed=b"in") == (b"in{}", 7)
    (words,) = [c for c in fake.calls("create") if "-i" in c]
    for option in ("--init", "--cap-drop=ALL", "--log-driver=none", "--pull=never"):
        assert option in words
    assert "--security-opt=no-new-privileges" in words
    at_once = ["-t", "0"] if os.environ[engines.VARIABLE] == "podman" else []
    assert {tuple(call[:-1]) for call in fake.calls("rm")} == {("rm", "-f", *at_once, "-v")}
    assert not list(fake.folder.glob("container-*"))


def test_without_a_shell_the_engine_carries_what_it_prints(fake: Fake) -> None:
    fake.says(shell=False)
    assert fake.run("cat; exit 2", feed=b"in") == (b"in", 2)
    assert not any("/penstock/pipes" in word for c in fake.calls("create") for word in c)


def test_a_missing_image_is_pulled_once(fake: Fake) -> None:
    fake.says(images={})
    heard: list[str] = []
    known_image(find_engine(), "x:1", "missing", heard.append)
    known_image(find_engine(), "x:1", "missing", heard.append)
    assert heard == ["pulling the image x:1"]
    assert len(fake.calls("pull")) == 1


def test_an_image_that_cannot_be_pulled_quotes_the_engine(fake: Fake) -> None:
    fake.says(images={}, fails={"pull": "Error: denied: requested access"})
    with pytest.raises(PenstockError, match="requested access") as caught:
        known_image(find_engine(), "x:1")
    assert caught.value.code == "connector.image_missing"


def test_an_engine_that_creates_nothing_is_quoted(fake: Fake) -> None:
    image = known_image(find_engine(), "x:1")
    fake.says(fails={"create": "no space left on device"})
    runtime = ContainerRuntime.of(Start(image=image, role="destination"), image, Masker())
    with pytest.raises(DestinationError, match="no space left on device") as caught:
        runtime.open(["true"], RunTimeouts())
    assert "engine" in caught.value.code


def test_a_container_that_the_engine_lost_is_an_error_and_not_an_end(fake: Fake) -> None:
    image = known_image(find_engine(), "x:1")
    fake.says(fails={"inspect": "No such container"})
    runtime = ContainerRuntime.of(Start(image=image), image, Masker())
    with (
        pytest.raises(SourceError, match="is gone"),
        runtime.open(["true"], RunTimeouts()) as channel,
    ):
        while channel.read(20):
            pass
        channel.wait(10)


def test_what_the_kernel_killed_for_its_memory_says_so(fake: Fake) -> None:
    fake.says(state={"OOMKilled": True, "ExitCode": 137})
    for limits, words in ((Limits(max_memory=1 << 26), "64.0 MB"), (None, "ran out of memory")):
        with pytest.raises(SourceError, match=words) as caught:
            fake.run("exit 1", limits=limits)
        assert caught.value.code == "source.memory"


def test_no_engine_names_this_host_and_what_was_tried(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.environ[engines.VARIABLE] == "docker":
        fake.says(down=True)
        reason = "Cannot connect to the daemon"
    else:
        monkeypatch.setenv(engines.VARIABLE, "no-such-engine")
        reason = "no-such-engine: no such command"
    with pytest.raises(PenstockError) as caught:
        find_engine()
    assert caught.value.code == "connector.no_engine"
    assert os.uname().nodename in caught.value.message
    assert reason in caught.value.message


def test_an_engine_of_another_machine_is_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://user:secret@far:2375")
    with pytest.raises(PenstockError, match="another machine") as caught:
        find_engine()
    assert os.uname().nodename in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.skipif(os.geteuid() != 0, reason="another host name needs a namespace of its own")
def test_no_engine_names_the_host_that_asks(tmp_path: Path) -> None:
    """Issue 13, part 6: a worker of a cluster, whose name its driver does not have."""
    ask = (
        "import socket; socket.sethostname('worker-7');"
        "from penstock.runtimes.container.engine import find_engine; find_engine()"
    )
    done = subprocess.run(
        ["unshare", "--uts", sys.executable, "-c", ask],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", engines.VARIABLE: "no-such-engine"},
    )
    assert "no container engine answers on worker-7" in done.stderr


@pytest.mark.parametrize(
    ("network", "address"),
    [
        ({"Driver": "bridge", "IPAM": {"Config": [{"Gateway": "172.17.0.1"}]}}, "172.17.0.1"),
        ({"driver": "bridge", "subnets": [{"gateway": "10.88.0.1"}]}, "10.88.0.1"),
        ({"driver": "macvlan", "subnets": [{"gateway": "10.88.0.1"}]}, None),
        ({"Driver": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}}, None),
    ],
)
def test_a_server_of_this_machine_is_reached_at_a_bridges_gateway(
    fake: Fake, network: dict[str, Any], address: str | None
) -> None:
    fake.says(network=network)
    assert host_address(find_engine(), "x") == address


def test_a_bridge_whose_gateway_the_engine_does_not_list_is_asked_itself(fake: Fake) -> None:
    """So it is with the bridge of a Docker that started for the first time."""
    options = {"com.docker.network.bridge.name": "lo"}
    fake.says(network={"Driver": "bridge", "IPAM": {"Config": [{}]}, "Options": options})
    assert host_address(find_engine(), None) == "127.0.0.1"
    options["com.docker.network.bridge.name"] = "none-such"
    fake.says(network={"Driver": "bridge", "IPAM": {}, "Options": options})
    assert host_address(find_engine(), None) is None


def test_l10_what_the_kernel_cannot_bound_is_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.environ[engines.VARIABLE] == "podman":
        pytest.skip("podman as root has every controller")
    fake.says(info={"MemoryLimit": False})
    with pytest.raises(ConfigError) as caught:
        fake.run("true", limits=Limits(max_memory=1 << 26), permissions=Permissions())
    assert caught.value.problems[0].startswith("limits.max_memory cannot be enforced")


def test_l11_only_containers_of_dead_owners_are_removed(fake: Fake) -> None:
    from penstock.runtimes.owner import this_owner

    alive = f"penstock-{this_owner()}-aaa"
    boot, space, _, _ = this_owner().split("-")
    dead, strange = f"penstock-{boot}-{space}-4194303-1-bbb", "penstock-of-somebody"
    elsewhere = f"penstock-{boot}-0-4194303-1-ccc"
    for name in (alive, dead, strange, elsewhere):
        (fake.folder / f"container-{name}").write_text("{}")
    assert remove_orphans(find_engine()) == [dead]

"""A Docker engine that has the images of the tests, of this machine's Python and Node.js: real
connectors and the stubs. Neighbours: ``engine_daemon`` starts it, ``image_maker`` writes
archives."""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engine_daemon import docker_engine
from image_maker import (
    Made,
    compiled_layer,
    files_layer,
    folder_layer,
    node_layer,
    packages_layer,
    python_layer,
    shell_layer,
    write_archive,
)

from penstock.connectors.uv import find_uv
from penstock.runtimes.container.engine import VARIABLE

_ROOM = 4 << 30
ENGINE = os.environ.get(VARIABLE, "docker")
STUBS = Path(__file__).parents[1] / "stubs"
FAKER = "airbyte-source-faker==7.2.1"
CDK = "@syncmaven/node-cdk@0.0.11"
_CDK_DESTINATION = """
const fs = require("fs");
const { stdProtocol } = require("@syncmaven/node-cdk");
const { z } = require("zod");
stdProtocol({
  name: "counted",
  credentialsType: z.object({ file: z.string() }),
  defaultStream: "rows",
  streams: [{
    name: "rows",
    rowType: z.object({}).passthrough(),
    createOutputStream: async (config, ctx) => ({
      handleRow: async (row) => {
        const before = (await ctx.store.get("stored"))?.rows ?? 0;
        await ctx.store.set("stored", { rows: before + 1 });
        fs.appendFileSync(config.credentials.file,
          JSON.stringify({ before, seq: row.seq }) + "\\n");
      },
    }),
  }],
});
"""
_FAKER_RUNS = "from source_faker.run import run; run()"


@contextmanager
def engine_with_images() -> Generator[str]:
    """``DOCKER_HOST`` of an engine that has every image of :func:`_images`, set for this process
    too; PENSTOCK_TEST_ENGINE names one that stays for the next session. With
    PENSTOCK_CONTAINER_ENGINE=podman Podman, with a storage of its own, and no host."""
    lasting = os.environ.get("PENSTOCK_TEST_ENGINE")
    with ExitStack() as stack:
        place = TemporaryDirectory(prefix="penstock-docker-", dir=_in_memory())
        folder = Path(stack.enter_context(place))
        began = time.monotonic()
        if ENGINE == "podman":
            stack.enter_context(_podman_storage(folder))
            archive = folder / "images.tar"
            write_archive(archive, _images(folder / "packages"))
            subprocess.run([ENGINE, "load", "-q", "-i", str(archive)], check=True)
            archive.unlink()
            yield ""
            return
        host = lasting or stack.enter_context(docker_engine(folder / "engine"))
        before = os.environ.get("DOCKER_HOST")
        os.environ["DOCKER_HOST"] = host
        if not lasting or not _has_images():
            started = time.monotonic()
            archive = folder / "images.tar"
            write_archive(archive, _images(folder / "packages"))
            made = time.monotonic()
            subprocess.run(["docker", "load", "-q", "-i", str(archive)], check=True)
            archive.unlink()
            took = (started - began, made - started, time.monotonic() - made)
            print("engine {:.1f} s, images {:.1f} s, load {:.1f} s".format(*took))
        try:
            yield host
        finally:
            os.environ.pop("DOCKER_HOST")
            if before is not None:
                os.environ["DOCKER_HOST"] = before


@contextmanager
def _podman_storage(folder: Path) -> Generator[None]:
    """Images and containers of its own, removed at the end. A machine may not let a container have
    more open files and processes than this process may."""
    storage, conf = folder / "storage.conf", folder / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    limits = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    most = {name: min(resource.getrlimit(limit)[1], 32768) for name, limit in limits.items()}
    words = ", ".join(f'"{name}={n}:{n}"' for name, n in most.items() if n > 0)
    conf.write_text(f"[containers]\ndefault_ulimits = [{words}]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        patch.setenv("CONTAINERS_CONF", str(conf))
        yield
        subprocess.run([ENGINE, "system", "reset", "-f"], capture_output=True)


def _in_memory() -> str | None:
    """Images are many small files, which a disk may take half a minute to forget."""
    memory = "/dev/shm"
    roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free > _ROOM
    return memory if roomy else None


def _has_images() -> bool:
    asked = ["docker", "image", "inspect", "test/source-faker:7.2.1", "test/stderr-only:1"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def _images(folder: Path) -> list[Made]:
    subprocess.run(
        [
            find_uv(),
            "pip",
            "install",
            "-q",
            "--target",
            str(folder),
            "--python",
            sys.executable,
            FAKER,
        ],
        check=True,
    )
    python, shell = python_layer(), shell_layer()
    stubs = files_layer({f"/stubs/{f.name}": f for f in sorted(STUBS.glob("*.py"))})
    packages = packages_layer(folder)
    compiled = compiled_layer(folder, _FAKER_RUNS.partition(";")[0])
    base = (python, shell, stubs)

    node = shutil.which("node")
    assert node is not None, "Node.js and npm are needed"
    cdk = (python, shell, node_layer(node), folder_layer(_cdk(folder.parent), "/app"))

    def stub(name: str, **more: str) -> Made:
        return Made(
            f"test/{name.replace('_', '-')}:1", base, ("python3", f"/stubs/{name}.py"), **more
        )

    return [
        Made(
            "test/source-faker:7.2.1", (*base, packages, compiled), ("python3", "-c", _FAKER_RUNS)
        ),
        stub("stub_source"),
        stub("stub_destination"),
        stub("stub_tap", user="airbyte"),
        Made(
            "test/stub-target:1",
            base,
            ("python3", "/stubs/stub_target.py", '{"ack": "end", "save": "/tmp/saved"}'),
            user="1000:1000",
        ),
        Made("test/cdk-destination:1", cdk, ("/usr/bin/node", "/app/main.js"), user="1000:1000"),
        Made("test/plain:1", base),
        Made("test/shell:1", base, ("sh", "-c")),
        Made("test/user-shell:1", base, ("sh", "-c"), user="airbyte"),
        Made("test/no-shell:1", (python, stubs), ("python3", "/stubs/stub_source.py")),
        Made("test/stderr-only:1", base, ("sh", "-c", "echo only words >&2")),
        Made("test/wrong:1", base, ("/no/such/program",)),
        Made("test/not-executable:1", base, ("/etc/passwd",)),
    ]


def _cdk(folder: Path) -> Path:
    """A Syncmaven destination on the real CDK that stores how many rows it has had."""
    place = folder / "cdk"
    place.mkdir()
    (place / "package.json").write_text('{"name": "counted", "private": true}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", CDK]
    subprocess.run(install, cwd=place, check=True, capture_output=True, timeout=300)
    (place / "main.js").write_text(_CDK_DESTINATION)
    return place

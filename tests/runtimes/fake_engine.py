"""A container engine's command line that isolates nothing: the words of ``docker`` and ``podman``
that Penstock uses, with processes of this machine as containers and mounts that are replaced in
their arguments. For tests of what is said to an engine and of what it answers; how real ones behave
is for those that start one.

``CONTAINERS_FAKE`` names a folder: ``calls`` gets each call as a line of JSON; ``engine.json`` says
how it behaves (``kind``, ``down``, ``images``, ``network``; ``fails``: by verb, what it says on
stderr)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

WITH_VALUE = ("--name", "--label", "--entrypoint", "--mount", "--env")


def main() -> int:
    folder = Path(os.environ["CONTAINERS_FAKE"])
    words = sys.argv[1:]
    with open(folder / "calls", "a") as calls:
        calls.write(json.dumps(words) + "\n")
    engine = json.loads((folder / "engine.json").read_text())
    verb = " ".join(words[:2]) if words[0] in ("image", "network") else words[0]
    if verb in engine.get("fails", {}):
        print(engine["fails"][verb], file=sys.stderr)
        return 125
    answer = VERBS[verb](folder, engine, words)
    return answer if isinstance(answer, int) else 0


def info(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    if engine.get("down"):
        print(json.dumps({"ServerErrors": ["Cannot connect to the daemon"]}))
        return 1
    if engine["kind"] == "podman":
        print(json.dumps({"host": {"security": {"rootless": False}}, "version": {"Version": "4"}}))
    else:
        told = {"ServerVersion": "20", "MemoryLimit": True, "PidsLimit": True}
        print(json.dumps({**told, **engine.get("info", {})}))
    return 0


def image_inspect(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    image = engine["images"].get(words[-1])
    if image is None:
        print(f"Error: No such image: {words[-1]}", file=sys.stderr)
        return 1
    print(json.dumps([{"Id": words[-1], "Os": "linux", "Config": image}]))
    return 0


def network_inspect(folder: Path, engine: dict[str, Any], words: list[str]) -> None:
    print(json.dumps([engine["network"]]))


def pull(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    engine["images"][words[-1]] = {"Entrypoint": ["sh", "-c"]}
    (folder / "engine.json").write_text(json.dumps(engine))
    return 0


def create(folder: Path, engine: dict[str, Any], words: list[str]) -> None:
    options: dict[str, list[str]] = {}
    left = words[1:]
    while left[0].startswith("-"):
        name, equals, value = left.pop(0).partition("=")
        value = value if equals else left.pop(0) if name in WITH_VALUE else ""
        options.setdefault(name, []).append(value)
    image, *arguments = left
    entry = options.get("--entrypoint") or engine["images"][image].get("Entrypoint") or []
    command = json.dumps([*entry, *arguments])
    for mount in options.get("--mount", []):
        told = dict(part.partition("=")[::2] for part in mount.split(","))
        command = command.replace(told["dst"], told["src"])
    state = {"Status": "created", "Running": False, "ExitCode": 0, "Error": "", "OOMKilled": False}
    made = {"command": json.loads(command), "state": state}
    (folder / f"container-{options['--name'][0]}").write_text(json.dumps(made))


def start(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    path = folder / f"container-{words[-1]}"
    made = json.loads(path.read_text())
    code = subprocess.run(made["command"]).returncode
    made["state"] |= {"Status": "exited", "ExitCode": code if code >= 0 else 128 - code}
    made["state"] |= engine.get("state", {})
    path.write_text(json.dumps(made))
    return int(engine.get("client", made["state"]["ExitCode"]))


def inspect(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    path = folder / f"container-{words[-1]}"
    if not path.exists():
        print("Error: No such object", file=sys.stderr)
        return 1
    print(json.dumps(json.loads(path.read_text())["state"]))
    return 0


def remove(folder: Path, engine: dict[str, Any], words: list[str]) -> None:
    (folder / f"container-{words[-1]}").unlink(missing_ok=True)


def listed(folder: Path, engine: dict[str, Any], words: list[str]) -> None:
    for path in folder.glob("container-*"):
        print(path.name.removeprefix("container-"))


def copied(folder: Path, engine: dict[str, Any], words: list[str]) -> int:
    path = words[-2].partition(":")[2]
    if path == "/bin/sh" and not engine.get("shell", True):
        return 1
    return subprocess.run(["tar", "-chf", "-", "-C", "/", path[1:]]).returncode


VERBS: dict[str, Any] = {
    "info": info,
    "image inspect": image_inspect,
    "network inspect": network_inspect,
    "pull": pull,
    "create": create,
    "start": start,
    "inspect": inspect,
    "rm": remove,
    "ps": listed,
    "cp": copied,
    "stop": lambda *_: 0,
}

if __name__ == "__main__":
    sys.exit(main())

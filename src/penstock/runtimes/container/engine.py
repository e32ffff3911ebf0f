"""Finds the container engine of this machine, by its command line, and calls it.

``docker`` and ``podman`` share the commands that are used here; :class:`Engine` has the
differences. Not here: the options of a container (``command``), its run (``runtime``).
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, cast

import msgspec

from penstock.errors import ConnectorError
from penstock.runtimes.env import BASE

VARIABLE = "PENSTOCK_CONTAINER_ENGINE"
"""The variable with the engine's command. Default: ``docker`` or ``podman``, whichever answers
first."""
CALL_BOUND = 60.0
"""Seconds for a short command of an engine."""
_INFO_BOUND = 20.0
_KNOWN = ("docker", "podman")
_HANDED = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_", "BUILDAH_", "XDG_", "SSL_CERT_")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """``command``: the path of its command line. ``maps_users``: a user's number inside maps to
    another one outside. ``own_user_is_root``: root inside is our own user. ``shares_pipes``: a
    named pipe of this machine works inside. ``limits_memory``, ``limits_processes``: its kernel
    supports it."""

    command: str
    kind: Literal["docker", "podman"]
    version: str
    maps_users: bool = False
    own_user_is_root: bool = False
    shares_pipes: bool = True
    limits_memory: bool = True
    limits_processes: bool = True

    def call(
        self, words: Sequence[str], bound: float = CALL_BOUND
    ) -> "subprocess.CompletedProcess[str]":
        """Runs one command to its end. Raises ``ConnectorError`` (``connector.engine``) where it
        does not end in time; a failure is in its exit code."""
        return _run([self.command, *words], bound)

    def output(self, words: Sequence[str], what: str, bound: float = CALL_BOUND) -> str:
        """Returns what a command printed. If it failed, raises ``ConnectorError``
        (``connector.engine``), whose message begins with ``what``."""
        done = self.call(words, bound)
        if done.returncode:
            raise refusal(f"{what}: {self.kind} reports: {last_output(done)}")
        return done.stdout

    def removal(self, name: str) -> list[str]:
        """Returns the command that ends and removes a container at once, with its own volumes."""
        at_once = ["-t", "0"] if self.kind == "podman" else []
        return [self.command, "rm", "-f", *at_once, "-v", name]


def find_engine() -> Engine:
    """Returns the engine of this machine, which is searched once. Raises ``ConnectorError``
    (``connector.no_engine``)."""
    return _found(os.environ.get(VARIABLE), os.environ.get("PATH"), os.environ.get("DOCKER_HOST"))


@cache
def _found(named: str | None, path: str | None, host: str | None) -> Engine:
    """Finds the engine; the result depends only on the arguments."""
    del path
    if host is not None and not host.startswith("unix:"):
        raise ConnectorError(
            f"DOCKER_HOST of {platform.node()} names an engine on another machine "
            f"({host.partition(':')[0]}:...), which cannot be given the files of this one",
            code="connector.no_engine",
            hint="use the engine of this machine: unset DOCKER_HOST, or name a unix:// socket",
        )
    reasons: list[str] = []
    for name in (named,) if named else _KNOWN:
        command = shutil.which(name)
        if command is None:
            reasons.append(f"{name}: no such command")
            continue
        try:
            done = _run([os.path.abspath(command), "info", "--format", "{{json .}}"], _INFO_BOUND)
            return _read(os.path.abspath(command), done)
        except ConnectorError as e:
            reasons.append(f"{name}: {e.message}")
    raise ConnectorError(
        f"no container engine answers on {platform.node()} ({'; '.join(reasons)})",
        code="connector.no_engine",
        hint=f"install Docker or Podman there and start it; {VARIABLE} names another command",
    )


def refusal(message: str) -> ConnectorError:
    """Returns the error for an engine's failed command."""
    return ConnectorError(
        message,
        code="connector.engine",
        hint="see the engine's message; `penstock doctor` tests it",
    )


def last_output(done: "subprocess.CompletedProcess[str]") -> str:
    """Returns the last line of a failed command's output."""
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return words[-1].removeprefix("Error response from daemon: ") if words else "nothing"


def environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of the engine's command line: ours, which no connector sees."""
    known = os.environ if environ is None else environ
    kept = {
        name: value
        for name, value in known.items()
        if name in BASE or name.startswith(_HANDED) or name.lower() in _PROXIES
    }
    kept.setdefault("PATH", os.defpath)
    return kept


def _run(command: Sequence[str], bound: float) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=bound,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise refusal(f"`{' '.join(command[:2])}` did not answer in {bound:.0f} s") from None
    except OSError as e:
        raise refusal(f"{command[0]} cannot be run: {e.strerror or e}") from e


def _read(command: str, done: "subprocess.CompletedProcess[str]") -> Engine:
    try:
        info = cast(dict[str, Any], json.loads(done.stdout))
    except ValueError:
        info = {}
    if "host" in info:
        return _podman(command, info)
    if done.returncode or not info.get("ServerVersion"):
        faults = info.get("ServerErrors") or [last_output(done)]
        raise refusal(str(faults[0]).strip())
    options = " ".join(map(str, info.get("SecurityOptions") or ()))
    own_machine = "Desktop" not in str(info.get("OperatingSystem"))
    rootless = "name=rootless" in options
    return Engine(
        command=command,
        kind="docker",
        version=str(info["ServerVersion"]),
        maps_users=rootless or "name=userns" in options,
        own_user_is_root=rootless,
        shares_pipes=own_machine and os.uname().sysname == "Linux",
        limits_memory=bool(info.get("MemoryLimit")),
        limits_processes=bool(info.get("PidsLimit")),
    )


def _podman(command: str, info: dict[str, Any]) -> Engine:
    host = cast(dict[str, Any], info["host"])
    security = cast(dict[str, Any], host.get("security") or {})
    rootless = bool(security.get("rootless"))
    controllers = cast("list[str] | None", host.get("cgroupControllers"))
    # As root every controller of the machine is there; podman lists them on version 2 alone.
    enforced = controllers if controllers or rootless else ["memory", "pids"]
    return Engine(
        command=command,
        kind="podman",
        version=str(cast(dict[str, Any], info.get("version") or {}).get("Version")),
        maps_users=rootless,
        own_user_is_root=rootless,
        shares_pipes=os.uname().sysname == "Linux",
        limits_memory="memory" in (enforced or ()),
        limits_processes="pids" in (enforced or ()),
    )

"""Follows a page of the documents as its reader would: in a folder that has what the page
presupposes, every block in its order.

A shell block runs under bash, a pipeline file is written and run, Python runs in this process. Of a
block that shows a terminal the commands run, and what it shows without a number must be printed.
Nothing of a page is left out unless its test says why (``elsewhere``).
"""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from doc_blocks import RUNNABLE, Block, blocks

import forked_cli
import warm_spark

FAKER = "airbyte:source-faker@7.2.1"
OWN_FAKER = "airbyte:./source-faker"
# For pages whose subject it is not; the README, the tour and the tutorial have the registry's.
AS_FAKER = {FAKER: OWN_FAKER, "airbyte:source-faker": OWN_FAKER}
SHOP = """pipeline: shop
source: { use: "airbyte:./source-shop", streams: [users] }
destination: { use: "parquet:./shops" }
"""
SECONDS = 240.0
STUBS = Path(__file__).parents[1] / "stubs"
SHOWN_ALWAYS = re.compile(r"^[^\d…]*$")
OF_THE_MACHINE = "penstock doctor"  # its answer is another on each


@dataclass
class Folder:
    """Where a reader stands. ``environ``: beside a Spark that stays; ``names``: what blocks in
    Python have; ``replaced``: texts of the page that name what is another here; ``last``: a
    function of ``names`` that is given the value of a block's last line."""

    path: Path
    environ: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    last: str | None = None
    said: str = ""
    _ran: set[str] = field(default_factory=set)

    # -- what the page presupposes

    def file(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def program(self, name: str, *command: str | Path) -> Path:
        """An executable that is another program with its arguments."""
        words = " ".join(f"'{word}'" for word in command)
        return self.file(name, f'#!/bin/sh\nexec {words} "$@"\n', 0o755)

    def python(self, name: str, text: str) -> Path:
        return self.file(name, f"#!{sys.executable}\n{text}", 0o755)

    # -- the reader

    def follow(
        self,
        *pages: str,
        elsewhere: Mapping[str, str] = {},
        before: Mapping[str, Callable[[], object]] = {},
        written: Mapping[str, tuple[str, str]] = {},
    ) -> None:
        """Runs each block. By a text that a block has: ``elsewhere``, the test that runs it, or the
        page that has each of its commands word for word and is followed by a test of its own;
        ``before``, what the page presupposes there; ``written``, the file that it is, and the
        command that then runs."""
        left = dict(elsewhere)
        done = 0
        for block in (b for page in pages for b in blocks(*RUNNABLE, page=page)):
            if key := next((key for key in elsewhere if key in block.text), None):
                where = left.pop(key, None)
                if where is not None and where.endswith(".md"):
                    assert_said(block, where)
                continue
            for key, prepare in before.items():
                if key in block.text:
                    prepare()
            if place := next((written[key] for key in written if key in block.text), None):
                self.file(place[0], self.here(block.text))
                self.shell(block, place[1])
            else:
                self.run(block)
            done += 1
        assert done and not left, (pages, left)

    def run(self, block: Block) -> None:
        text = self.here(block.text)
        match block.language:
            case "sh" if text.startswith("#!"):
                self.file("script", text, 0o755)
                self.shell(block, "./script spec")
            case "sh":
                self.shell(block, text)
            case "cron":
                self.shell(block, text.split(maxsplit=5)[5])
            case "console":
                self._terminal(block, text)
            case "yaml":
                self._pipeline(block, text)
            case "ini":
                said = dict(re.findall(r"^(\w+)=(.*)", text, re.MULTILINE))
                self.shell(block, f"cd {said['WorkingDirectory']} && {said['ExecStart']}")
            case "python":
                self._python(block, text)
            case _:
                raise AssertionError(f"{block} is not run")

    def here(self, text: str) -> str:
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def shell(self, block: Block | str, text: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self.path,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in codes, (
            f"{block}\n{text}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        )
        self.said += done.stdout
        return done.stdout + done.stderr

    def environment(self) -> dict[str, str]:
        scripts = f"{forked_cli.folder_of_script()}:{Path(sys.executable).parent}"
        path = f"{self.path}:{scripts}:{os.environ['PATH']}"
        home = str(self.path / "home")
        return (
            warm_spark.as_environment(PATH=path, PENSTOCK_HOME=home, COLUMNS="200") | self.environ
        )

    def _python(self, block: Block, text: str) -> None:
        tree = ast.parse(text)
        end = tree.body[-1]
        if self.last is not None and isinstance(end, ast.Expr):
            end.value = ast.Call(ast.Name(self.last, ast.Load()), [end.value], [])
        exec(compile(ast.fix_missing_locations(tree), str(block), "exec"), self.names)

    def _terminal(self, block: Block, text: str) -> None:
        for command, shown in commands(text):
            codes = (2,) if "Error:" in "".join(shown) else (0,)
            said = squeezed(self.shell(block, command, codes))
            for line in [] if command == OF_THE_MACHINE else shown:
                if SHOWN_ALWAYS.match(line):
                    assert squeezed(line) in said, (
                        f"{block}\n{command}\nshows\n{line}\nnot in\n{said}"
                    )

    def _pipeline(self, block: Block, text: str) -> None:
        """Where only a part of a file is shown, the rest is the smallest that there is."""
        found = yaml.safe_load(re.sub(r"\$\{[^}]*\}|!secret ", "1", text))
        if "pipeline" not in found:
            text = f"pipeline: line{block.line}\n{text}"
        if "source" not in found:
            text += "\nsource: { use: 'airbyte:./source', streams: [users] }\n"
        if "destination" not in found:
            text += f"\ndestination: {{ use: 'parquet:./lake-{block.line}' }}\n"
        if (name := re.search(r"^pipeline: (\S+)", text, re.MULTILINE)) is not None:
            if name[1] in self._ran:  # another example
                text = text.replace(name[0], f"{name[0]}-{block.line}")
                text = text.replace("./lake", f"./lake-{block.line}")
            self._ran.add(name[1])
        file = self.file(f"line{block.line}.yaml", text)
        self.shell(block, f"penstock run {file.name}")


def assert_said(block: Block, page: str) -> None:
    """Each command of a block is one of ``page``'s; ``./penstock`` is a checkout's."""
    there = {line for other in blocks("sh", "console", page=page) for line in _lines(other)}
    missing = {*_lines(block)} - there
    assert not missing, f"{block}: {page} has no {missing}"


def _lines(block: Block) -> list[str]:
    found = (re.sub(r"(^|\s)#(?!!).*", "", line) for line in block.text.splitlines())
    words = (re.sub(r"^(\$ |\./(?=penstock ))", "", line.strip()).strip() for line in found)
    return [line for line in words if line]


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Each command of a terminal, with the lines that it is shown to print."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def squeezed(text: str) -> str:
    return " ".join(text.split())


def people(folder: Folder, place: str = "lake") -> None:
    """The Delta table that pages read."""
    config = '{"count": 50, "always_updated": false}'
    command = f"penstock run {OWN_FAKER} delta:./{place} --config '{config}' --streams users"
    folder.shell("people", command)


class Heard(ThreadingHTTPServer):
    """Keeps what is posted: path and body."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.posts.append((self.path, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def json(self) -> list[Any]:
        return [json.loads(body) for _, body in self.posts]
